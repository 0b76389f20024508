-- What the tables of a sweep were when it was planned, column by column: a column that was dropped and added again is another one.
ALTER TABLE wane.archive_sweep ADD COLUMN layout jsonb;
-- Which copy is stale: a key alone may name two copies.
ALTER TABLE wane.archive_stale ADD COLUMN version text NOT NULL DEFAULT '';
