-- Snapshots: how large every table was. All of a pass share one moment; the first of a day is kept for long, the others are thinned out.
CREATE TABLE wane_snapshot (
  taken_at   TEXT    NOT NULL,              -- to the minute: a second pass in the same minute replaces the first
  table_name TEXT    NOT NULL,              -- with its schema
  grain      TEXT    NOT NULL CHECK (grain IN ('day', 'fine')),
  row_count  INTEGER,                       -- NULL: neither counted nor estimated in time
  exact      INTEGER NOT NULL,              -- whether the rows were counted
  bytes      INTEGER,                       -- with indexes
  bytes_exact INTEGER NOT NULL,
  rate       REAL,                          -- rows a day, as forecast at that moment; NULL: no forecast
  rate_low   REAL,
  rate_high  REAL,
  PRIMARY KEY (taken_at, table_name)
);
CREATE INDEX wane_snapshot_table ON wane_snapshot (table_name, taken_at);
CREATE INDEX wane_snapshot_grain ON wane_snapshot (grain, taken_at, table_name);
