-- Rules that the fuse stopped, and the plan that was approved for each: one row per rule, changed in place.
-- The audit trail has the history of approvals.
CREATE TABLE wane.fuse (
  table_name  text NOT NULL,
  rule        text NOT NULL,
  blown_at    timestamptz,         -- since when unattended sweeps take nothing; NULL: they may
  reason      text,
  plan        text,                -- the fingerprint of the approved plan; NULL: none is approved
  contract    text,                -- the fingerprint of its contract
  planned_at  timestamptz,         -- the time that decides which rows the plan takes
  plan_rows   bigint,
  approved_at timestamptz,
  approved_by text,
  expires_at  timestamptz,
  PRIMARY KEY (table_name, rule)
);
