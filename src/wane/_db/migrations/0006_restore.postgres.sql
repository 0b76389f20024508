-- Restores from the archive: one row each, unfinished at most one per table. `staged` is the folder that holds the chosen rows.
CREATE TABLE wane.archive_restore (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name    text NOT NULL,
  state         text NOT NULL CHECK (state IN ('planned', 'restored', 'done')),
  staged        text NOT NULL,
  into_name     text,
  on_conflict   text NOT NULL CHECK (on_conflict IN ('refuse', 'skip', 'replace')),
  protect_until timestamptz,
  inputs        jsonb NOT NULL,
  actor         text NOT NULL,
  planned_at    timestamptz NOT NULL,
  changed_at    timestamptz NOT NULL
);
CREATE UNIQUE INDEX archive_restore_open ON wane.archive_restore (table_name) WHERE state <> 'done';
CREATE INDEX archive_restore_table ON wane.archive_restore (table_name, id);

-- What one task brings back: how many rows it has, how many of them were looked at, and what became of them.
CREATE TABLE wane.archive_restore_piece (
  restore_id bigint NOT NULL REFERENCES wane.archive_restore (id),
  number     bigint NOT NULL,
  row_count  bigint NOT NULL,
  looked_at  bigint NOT NULL DEFAULT 0,
  there      bigint NOT NULL DEFAULT 0,
  replaced   bigint NOT NULL DEFAULT 0,
  counts     jsonb  NOT NULL,
  audit_id   bigint,
  PRIMARY KEY (restore_id, number)
);

-- Rows that did not come back, and why: they stay in the archive.
CREATE TABLE wane.archive_restore_kept (
  restore_id bigint NOT NULL REFERENCES wane.archive_restore (id),
  number     bigint NOT NULL,
  key        text   NOT NULL,
  reason     text   NOT NULL,
  PRIMARY KEY (restore_id, key)
);
