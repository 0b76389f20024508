-- Copies of the entries of each archive table's log, so that entries which the log loses can be written back.
CREATE TABLE wane.archive_log_entry (
  table_name text NOT NULL,
  version    bigint NOT NULL,
  entry      text NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- What the last command that compared a log with its record found wrong with it; NULL: nothing.
ALTER TABLE wane.archive_log ADD COLUMN problem text;
