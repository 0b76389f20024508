"""Reading the archive: conditions, the files that can match, rows in Arrow or on Spark."""
