-- Which attempt evicts a range, so that an earlier one that still runs changes nothing; and what became of its copies.
ALTER TABLE wane_archive_range ADD COLUMN evictor TEXT;
ALTER TABLE wane_archive_range ADD COLUMN gone TEXT;
UPDATE wane_archive_range SET gone = json_extract(manifest, '$.gone') WHERE json_extract(manifest, '$.gone') IS NOT NULL;
