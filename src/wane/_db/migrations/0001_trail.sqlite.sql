-- The audit trail: one row for every prune, mark or sweep, written in the transaction that it tells of.
CREATE TABLE wane_audit (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  executed_at TEXT    NOT NULL,
  kind        TEXT    NOT NULL,
  table_name  TEXT    NOT NULL,
  rule        TEXT,
  run_id      TEXT,
  actor       TEXT    NOT NULL,
  cutoff      TEXT,
  inputs      TEXT    NOT NULL CHECK (json_valid(inputs)),
  counts      TEXT    NOT NULL CHECK (json_valid(counts)),
  row_count   INTEGER NOT NULL,
  batches     INTEGER NOT NULL DEFAULT 1,
  seconds     REAL    NOT NULL
);
CREATE INDEX wane_audit_kind ON wane_audit (kind, id);
CREATE INDEX wane_audit_table ON wane_audit (table_name, id);
CREATE UNIQUE INDEX wane_audit_run ON wane_audit (run_id, table_name, rule) WHERE run_id IS NOT NULL;

-- Holds: somebody's order that a row, or a whole table (key IS NULL), stays.
CREATE TABLE wane_hold (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  table_name  TEXT NOT NULL,
  key         TEXT,
  reason      TEXT NOT NULL,
  author      TEXT NOT NULL,
  created_at  TEXT NOT NULL,
  ends_at     TEXT,
  released_at TEXT,
  released_by TEXT
);
CREATE INDEX wane_hold_active ON wane_hold (table_name, key) WHERE released_at IS NULL;

-- Flags: switches that are read before every batch.
CREATE TABLE wane_flag (
  name       TEXT PRIMARY KEY,
  enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  changed_at TEXT NOT NULL,
  changed_by TEXT NOT NULL
);
