-- Rules that the fuse stopped, and the plan that was approved for each: one row per rule, changed in place.
-- The audit trail has the history of approvals.
CREATE TABLE wane_fuse (
  table_name  TEXT NOT NULL,
  rule        TEXT NOT NULL,
  blown_at    TEXT,                -- since when unattended sweeps take nothing; NULL: they may
  reason      TEXT,
  plan        TEXT,                -- the fingerprint of the approved plan; NULL: none is approved
  contract    TEXT,                -- the fingerprint of its contract
  planned_at  TEXT,                -- the time that decides which rows the plan takes
  plan_rows   INTEGER,
  approved_at TEXT,
  approved_by TEXT,
  expires_at  TEXT,
  PRIMARY KEY (table_name, rule)
);
