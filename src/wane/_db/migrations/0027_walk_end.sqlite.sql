-- Where a walk of a table by its key ends: at the key that was last when it began. NULL in a walk that began before.
ALTER TABLE wane_walk ADD COLUMN end_key TEXT;
