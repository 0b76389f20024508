-- Where the walk of a table by its key has come to, for rules whose rows no index has in order of time: one row per
-- rule, changed in the transaction of every batch, deleted when the walk has reached the end of the table.
CREATE TABLE wane.walk (
  table_name text NOT NULL,
  rule       text NOT NULL,
  key_names  jsonb NOT NULL,
  last_key   jsonb NOT NULL,
  moved_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (table_name, rule)
);
