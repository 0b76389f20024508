-- Where the walk of a table by its key has come to, for rules whose rows no index has in order of time: one row per
-- rule, changed in the transaction of every batch, deleted when the walk has reached the end of the table.
CREATE TABLE wane_walk (
  table_name TEXT NOT NULL,
  rule       TEXT NOT NULL,
  key_names  TEXT NOT NULL,
  last_key   TEXT NOT NULL,
  moved_at   TEXT NOT NULL,
  PRIMARY KEY (table_name, rule)
);
