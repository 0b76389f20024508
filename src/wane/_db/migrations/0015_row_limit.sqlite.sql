-- What a table tends to by its retention window or cap, as forecast at that time; NULL: nothing bounds it, or not known.
ALTER TABLE wane_snapshot ADD COLUMN row_limit INTEGER;
ALTER TABLE wane_snapshot ADD COLUMN row_limit_high INTEGER;
