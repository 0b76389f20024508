-- The last commit of each archive table's log that this database knows of. A log that has fewer commits has lost some.
CREATE TABLE wane.archive_log (
  table_name text PRIMARY KEY,
  commits    bigint NOT NULL,
  version    bigint NOT NULL
);

-- The database that may write under the origin. A clone has the same row and another identity.
ALTER TABLE wane.archive_origin ADD COLUMN identity text;

-- The tables of a sweep, or of a restore, in the order of its parts; NULL where only the contract knew them.
ALTER TABLE wane.archive_sweep ADD COLUMN parts jsonb;
ALTER TABLE wane.archive_restore ADD COLUMN parts jsonb;
