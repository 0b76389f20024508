-- By age, for contracts that let the trail's old rows move to the archive.
CREATE INDEX wane_audit_age ON wane_audit (executed_at, id);
