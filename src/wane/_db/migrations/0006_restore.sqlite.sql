-- Restores from the archive: one row each, unfinished at most one per table. `staged` is the folder that holds the chosen rows.
CREATE TABLE wane_archive_restore (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  table_name    TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('planned', 'restored', 'done')),
  staged        TEXT NOT NULL,
  into_name     TEXT,
  on_conflict   TEXT NOT NULL CHECK (on_conflict IN ('refuse', 'skip', 'replace')),
  protect_until TEXT,
  inputs        TEXT NOT NULL,
  actor         TEXT NOT NULL,
  planned_at    TEXT NOT NULL,
  changed_at    TEXT NOT NULL
);
CREATE UNIQUE INDEX wane_archive_restore_open ON wane_archive_restore (table_name) WHERE state <> 'done';
CREATE INDEX wane_archive_restore_table ON wane_archive_restore (table_name, id);

-- What one task brings back: how many rows it has, how many of them were looked at, and what became of them.
CREATE TABLE wane_archive_restore_piece (
  restore_id INTEGER NOT NULL REFERENCES wane_archive_restore (id),
  number     INTEGER NOT NULL,
  row_count  INTEGER NOT NULL,
  looked_at  INTEGER NOT NULL DEFAULT 0,
  there      INTEGER NOT NULL DEFAULT 0,
  replaced   INTEGER NOT NULL DEFAULT 0,
  counts     TEXT    NOT NULL,
  audit_id   INTEGER,
  PRIMARY KEY (restore_id, number)
);

-- Rows that did not come back, and why: they stay in the archive.
CREATE TABLE wane_archive_restore_kept (
  restore_id INTEGER NOT NULL REFERENCES wane_archive_restore (id),
  number     INTEGER NOT NULL,
  key        TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  PRIMARY KEY (restore_id, key)
);
