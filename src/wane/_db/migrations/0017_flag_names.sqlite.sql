-- Flags are named retention.enabled and retention.<table>.enabled, unless a contract says otherwise. What was set under
-- the names that were the default before counts under these too: a table that is off stays off.
INSERT INTO wane_flag (name, enabled, changed_at, changed_by)
SELECT 'retention.enabled', enabled, changed_at, changed_by FROM wane_flag WHERE name = 'iu_core.retention_enabled'
ON CONFLICT (name) DO NOTHING;
INSERT INTO wane_flag (name, enabled, changed_at, changed_by)
SELECT substr(name, length('queue.') + 1), enabled, changed_at, changed_by
FROM wane_flag WHERE name LIKE 'queue.retention.%.enabled'
ON CONFLICT (name) DO NOTHING;
