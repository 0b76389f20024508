-- Copies of the entries of each archive table's log, so that entries which the log loses can be written back.
CREATE TABLE wane_archive_log_entry (
  table_name TEXT NOT NULL,
  version    INTEGER NOT NULL,
  entry      TEXT NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- What the last command that compared a log with its record found wrong with it; NULL: nothing.
ALTER TABLE wane_archive_log ADD COLUMN problem TEXT;
