-- The last commit of each archive table's log that this database knows of. A log that has fewer commits has lost some.
CREATE TABLE wane_archive_log (
  table_name TEXT PRIMARY KEY,
  commits    INTEGER NOT NULL,
  version    INTEGER NOT NULL
);

-- The database that may write under the origin. A clone has the same row and another identity.
ALTER TABLE wane_archive_origin ADD COLUMN identity TEXT;

-- The tables of a sweep, or of a restore, in the order of its parts; NULL where only the contract knew them.
ALTER TABLE wane_archive_sweep ADD COLUMN parts TEXT;
ALTER TABLE wane_archive_restore ADD COLUMN parts TEXT;
