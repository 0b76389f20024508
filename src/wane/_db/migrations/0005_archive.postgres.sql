-- Which database this is, for the archives that it writes: an archive takes rows of one database only.
CREATE TABLE wane.archive_origin (
  id bigint PRIMARY KEY CHECK (id = 1),
  origin text NOT NULL
);

-- What the archive of each table looks like, and which columns a strict sweep has proven.
CREATE TABLE wane.archive_table (
  table_name  text PRIMARY KEY,
  columns     jsonb NOT NULL,
  proven      text
);

-- The journal of the pipeline: one row per sweep, unfinished at most one per table.
CREATE TABLE wane.archive_sweep (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name  text NOT NULL,
  rule        text NOT NULL,
  state       text NOT NULL CHECK (state IN ('planned', 'written', 'verified', 'committed', 'evicted', 'done')),
  strict      boolean NOT NULL,
  decided_at  timestamptz NOT NULL,
  planned_at  timestamptz NOT NULL,
  changed_at  timestamptz NOT NULL,
  actor       text NOT NULL,
  columns     jsonb NOT NULL,
  archived    jsonb NOT NULL,
  evicted     jsonb NOT NULL,
  stale       bigint NOT NULL DEFAULT 0,
  absent      bigint NOT NULL DEFAULT 0,
  audit_id    bigint
);
CREATE UNIQUE INDEX archive_sweep_open ON wane.archive_sweep (table_name) WHERE state <> 'done';
CREATE INDEX archive_sweep_table ON wane.archive_sweep (table_name, id);

-- The (time, key) ranges of a sweep: what a task wrote of each, and how far its rows have left the hot table.
CREATE TABLE wane.archive_range (
  sweep_id bigint NOT NULL REFERENCES wane.archive_sweep (id),
  number   bigint NOT NULL,
  bounds   jsonb  NOT NULL,
  manifest jsonb,
  evicted  bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (sweep_id, number)
);

-- Rows that changed after they were copied: they stay hot, and their copies have to leave the archive.
CREATE TABLE wane.archive_stale (
  sweep_id bigint NOT NULL REFERENCES wane.archive_sweep (id),
  key      text   NOT NULL,
  reason   text   NOT NULL,
  removed  boolean NOT NULL DEFAULT false,
  PRIMARY KEY (sweep_id, key)
);
