-- The audit trail: one row for every prune, mark or sweep, written in the transaction that it tells of.
CREATE TABLE wane.audit (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  executed_at timestamptz NOT NULL,
  kind        text   NOT NULL,
  table_name  text   NOT NULL,
  rule        text,
  run_id      text,
  actor       text   NOT NULL,
  cutoff      timestamptz,
  inputs      jsonb  NOT NULL,
  counts      jsonb  NOT NULL,
  row_count   bigint NOT NULL,
  batches     bigint NOT NULL DEFAULT 1,
  seconds     double precision NOT NULL
);
CREATE INDEX audit_kind ON wane.audit (kind, id);
CREATE INDEX audit_table ON wane.audit (table_name, id);
CREATE UNIQUE INDEX audit_run ON wane.audit (run_id, table_name, rule) WHERE run_id IS NOT NULL;

-- Holds: somebody's order that a row, or a whole table (key IS NULL), stays.
CREATE TABLE wane.hold (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name  text NOT NULL,
  key         text,
  reason      text NOT NULL,
  author      text NOT NULL,
  created_at  timestamptz NOT NULL,
  ends_at     timestamptz,
  released_at timestamptz,
  released_by text
);
CREATE INDEX hold_active ON wane.hold (table_name, key) WHERE released_at IS NULL;

-- Flags: switches that are read before every batch.
CREATE TABLE wane.flag (
  name       text PRIMARY KEY,
  enabled    boolean NOT NULL,
  changed_at timestamptz NOT NULL,
  changed_by text NOT NULL
);
