-- Which attempt evicts a range, so that an earlier one that still runs changes nothing; and what became of its copies.
ALTER TABLE wane.archive_range ADD COLUMN evictor text;
ALTER TABLE wane.archive_range ADD COLUMN gone jsonb;
UPDATE wane.archive_range SET gone = manifest -> 'gone' WHERE manifest ? 'gone';
