-- How the columns of an archived table changed before a sweep; columns whose archived values a restore does not bring
-- back, for each table; and rows that were gone from the hot table when their copies were checked, whose copies are
-- still archived.
ALTER TABLE wane_archive_sweep ADD COLUMN changes TEXT;
ALTER TABLE wane_archive_restore ADD COLUMN left_out TEXT;
CREATE TABLE wane_archive_absent (
  sweep_id   INTEGER NOT NULL REFERENCES wane_archive_sweep (id),
  key        TEXT    NOT NULL,
  version    TEXT    NOT NULL,
  checked_at TEXT    NOT NULL,
  PRIMARY KEY (sweep_id, key)
);
