-- Snapshots: how large every table was. All of a pass share one moment; the first of a day is kept for long, the others are thinned out.
CREATE TABLE wane.snapshot (
  taken_at   timestamptz NOT NULL,          -- to the minute: a second pass in the same minute replaces the first
  table_name text    NOT NULL,              -- with its schema
  grain      text    NOT NULL CHECK (grain IN ('day', 'fine')),
  row_count  bigint,                        -- NULL: neither counted nor estimated in time
  exact      boolean NOT NULL,              -- whether the rows were counted
  bytes      bigint,                        -- with indexes
  bytes_exact boolean NOT NULL,
  rate       double precision,              -- rows a day, as forecast at that moment; NULL: no forecast
  rate_low   double precision,
  rate_high  double precision,
  PRIMARY KEY (taken_at, table_name)
);
CREATE INDEX snapshot_table ON wane.snapshot (table_name, taken_at);
CREATE INDEX snapshot_grain ON wane.snapshot (grain, taken_at, table_name);
