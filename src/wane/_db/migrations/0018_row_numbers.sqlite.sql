-- Where a snapshot stands, to correct its count later: by rows that came since, and by rows that sweeps took since.
ALTER TABLE wane_snapshot ADD COLUMN last_row INTEGER;
ALTER TABLE wane_snapshot ADD COLUMN last_audit INTEGER;
