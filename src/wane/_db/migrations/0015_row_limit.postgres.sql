-- What a table tends to by its retention window or cap, as forecast at that time; NULL: nothing bounds it, or not known.
ALTER TABLE wane.snapshot ADD COLUMN row_limit bigint, ADD COLUMN row_limit_high bigint;
