-- What becomes of the archive's own files: one row for every time that some are replaced, unfinished at most one per table.
CREATE TABLE wane_archive_job (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  table_name  TEXT NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('expire', 'compact')),
  state       TEXT NOT NULL CHECK (state IN ('planned', 'done', 'abandoned')),
  planned_at  TEXT NOT NULL,
  changed_at  TEXT NOT NULL,
  actor       TEXT NOT NULL,
  plan        TEXT NOT NULL,
  audit_id    INTEGER
);
CREATE UNIQUE INDEX wane_archive_job_open ON wane_archive_job (table_name) WHERE state = 'planned';
