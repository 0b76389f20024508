-- How the columns of an archived table changed before a sweep; columns whose archived values a restore does not bring
-- back, for each table; and rows that were gone from the hot table when their copies were checked, whose copies are
-- still archived.
ALTER TABLE wane.archive_sweep ADD COLUMN changes jsonb;
ALTER TABLE wane.archive_restore ADD COLUMN left_out jsonb;
CREATE TABLE wane.archive_absent (
  sweep_id   bigint NOT NULL REFERENCES wane.archive_sweep (id),
  key        text   NOT NULL,
  version    text   NOT NULL,
  checked_at timestamptz NOT NULL,
  PRIMARY KEY (sweep_id, key)
);
