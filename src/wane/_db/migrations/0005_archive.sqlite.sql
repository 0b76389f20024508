-- Which database this is, for the archives that it writes: an archive takes rows of one database only.
CREATE TABLE wane_archive_origin (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  origin TEXT NOT NULL
);

-- What the archive of each table looks like, and which columns a strict sweep has proven.
CREATE TABLE wane_archive_table (
  table_name  TEXT PRIMARY KEY,
  columns     TEXT NOT NULL,
  proven      TEXT
);

-- The journal of the pipeline: one row per sweep, unfinished at most one per table.
CREATE TABLE wane_archive_sweep (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  table_name  TEXT NOT NULL,
  rule        TEXT NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('planned', 'written', 'verified', 'committed', 'evicted', 'done')),
  strict      INTEGER NOT NULL CHECK (strict IN (0, 1)),
  decided_at  TEXT NOT NULL,
  planned_at  TEXT NOT NULL,
  changed_at  TEXT NOT NULL,
  actor       TEXT NOT NULL,
  columns     TEXT NOT NULL,
  archived    TEXT NOT NULL,
  evicted     TEXT NOT NULL,
  stale       INTEGER NOT NULL DEFAULT 0,
  absent      INTEGER NOT NULL DEFAULT 0,
  audit_id    INTEGER
);
CREATE UNIQUE INDEX wane_archive_sweep_open ON wane_archive_sweep (table_name) WHERE state <> 'done';
CREATE INDEX wane_archive_sweep_table ON wane_archive_sweep (table_name, id);

-- The (time, key) ranges of a sweep: what a task wrote of each, and how far its rows have left the hot table.
CREATE TABLE wane_archive_range (
  sweep_id INTEGER NOT NULL REFERENCES wane_archive_sweep (id),
  number   INTEGER NOT NULL,
  bounds   TEXT  NOT NULL,
  manifest TEXT,
  evicted  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (sweep_id, number)
);

-- Rows that changed after they were copied: they stay hot, and their copies have to leave the archive.
CREATE TABLE wane_archive_stale (
  sweep_id INTEGER NOT NULL REFERENCES wane_archive_sweep (id),
  key      TEXT   NOT NULL,
  reason   TEXT   NOT NULL,
  removed  INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1)),
  PRIMARY KEY (sweep_id, key)
);
