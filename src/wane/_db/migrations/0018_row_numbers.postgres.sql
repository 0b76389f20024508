-- Where a snapshot stands, to correct its count later: by rows that came since, and by rows that sweeps took since.
-- PostgreSQL numbers no rows and has statistics of its own.
ALTER TABLE wane.snapshot ADD COLUMN last_row bigint, ADD COLUMN last_audit bigint;
