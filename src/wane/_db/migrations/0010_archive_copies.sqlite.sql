-- What the tables of a sweep were when it was planned, column by column: a column that was dropped and added again is another one.
ALTER TABLE wane_archive_sweep ADD COLUMN layout TEXT;
-- Which copy is stale: a key alone may name two copies.
ALTER TABLE wane_archive_stale ADD COLUMN version TEXT NOT NULL DEFAULT '';
