-- What happened to columns of a sweep's rows on the way to the archive; NULL: they were copied as they were.
ALTER TABLE wane.archive_sweep ADD COLUMN transform jsonb;
