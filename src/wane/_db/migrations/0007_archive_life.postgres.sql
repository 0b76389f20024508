-- What becomes of the archive's own files: one row for every time that some are replaced, unfinished at most one per table.
CREATE TABLE wane.archive_job (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name  text NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('expire', 'compact')),
  state       text NOT NULL CHECK (state IN ('planned', 'done', 'abandoned')),
  planned_at  timestamptz NOT NULL,
  changed_at  timestamptz NOT NULL,
  actor       text NOT NULL,
  plan        jsonb NOT NULL,
  audit_id    bigint
);
CREATE UNIQUE INDEX archive_job_open ON wane.archive_job (table_name) WHERE state = 'planned';
