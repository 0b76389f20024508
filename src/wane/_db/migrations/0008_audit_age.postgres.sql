-- By age, for contracts that let the trail's old rows move to the archive.
CREATE INDEX audit_age ON wane.audit (executed_at, id);
