-- Tokens of the HTTP API: a name for the audit trail, a role, and the hash of the secret, which nothing stores.
CREATE TABLE wane_token (
  id text NOT NULL PRIMARY KEY,
  name text NOT NULL,
  role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
  secret_hash text NOT NULL,
  created_at text NOT NULL,
  created_by text NOT NULL,
  expires_at text,
  revoked_at text
);
