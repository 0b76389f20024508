-- Work claims on PostgreSQL.

CREATE TABLE work_claims (
    task_id          text        NOT NULL PRIMARY KEY,
    state            text        NOT NULL DEFAULT 'available'
                     CHECK (state IN ('available', 'claimed', 'completed', 'abandoned')),
    owner            text,
    fence            bigint      NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT now(),
    claimed_at       timestamptz,
    expires_at       timestamptz,
    completed_at     timestamptz,
    abandoned_at     timestamptz,
    reason           text,
    remembered_until timestamptz
);
CREATE INDEX work_claims_available ON work_claims (state, created_at, task_id) WHERE state = 'available';
CREATE INDEX work_claims_completed ON work_claims (state, completed_at, task_id);
CREATE INDEX work_claims_abandoned ON work_claims (state, abandoned_at, task_id);
CREATE INDEX work_claims_expiry ON work_claims (state, expires_at, task_id);

-- What is remembered of finished work, whatever becomes of its row.
CREATE TABLE work_claim_tombstones (
    task_id          text        NOT NULL PRIMARY KEY,
    owner            text,
    fence            bigint      NOT NULL,
    outcome          text        NOT NULL CHECK (outcome IN ('completed', 'abandoned')),
    finished_at      timestamptz NOT NULL,
    remembered_until timestamptz
);
CREATE INDEX work_claim_tombstones_expiry ON work_claim_tombstones (remembered_until, task_id);

-- Fences of all tasks come from one counter, so no fence is ever given out twice.
CREATE SEQUENCE work_claim_fences;
SELECT pg_catalog.setval('work_claim_fences'::pg_catalog.regclass, greatest(
    (SELECT max(fence) FROM work_claims), (SELECT max(fence) FROM work_claim_tombstones), 0) + 1, false);

-- Finished work is remembered in the transaction that finishes it, by any process, and forgotten in the one that opens it again. Nothing
-- happens when a row is deleted, so no way of deleting one, TRUNCATE included, can lose the memory.
-- Each speaks of the tombstones in the schema of the table that fires it, and finds nothing else by a bare name but what is PostgreSQL's own.
CREATE OR REPLACE FUNCTION work_claims_remember() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    finished timestamptz := coalesce(
        CASE NEW.state WHEN 'completed' THEN NEW.completed_at ELSE NEW.abandoned_at END, clock_timestamp());
BEGIN
    IF NEW.remembered_until IS NULL OR NEW.remembered_until > finished THEN
        EXECUTE format('INSERT INTO %I.work_claim_tombstones (task_id, owner, fence, outcome, finished_at, remembered_until)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (task_id) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, outcome = excluded.outcome,
                finished_at = excluded.finished_at, remembered_until = excluded.remembered_until', TG_TABLE_SCHEMA)
            USING NEW.task_id, NEW.owner, NEW.fence, NEW.state, finished, NEW.remembered_until;
    ELSE
        EXECUTE format('DELETE FROM %I.work_claim_tombstones WHERE task_id = $1', TG_TABLE_SCHEMA) USING NEW.task_id;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION work_claims_forget() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('DELETE FROM %I.work_claim_tombstones WHERE task_id = $1', TG_TABLE_SCHEMA) USING NEW.task_id;
    RETURN NULL;
END $$;
CREATE TRIGGER work_claims_inserted AFTER INSERT ON work_claims
    FOR EACH ROW WHEN (NEW.state IN ('completed', 'abandoned')) EXECUTE FUNCTION work_claims_remember();
CREATE TRIGGER work_claims_reopened AFTER UPDATE OF state ON work_claims
    FOR EACH ROW WHEN (OLD.state IN ('completed', 'abandoned') AND NEW.state NOT IN ('completed', 'abandoned'))
    EXECUTE FUNCTION work_claims_forget();
CREATE TRIGGER work_claims_finished
    AFTER UPDATE OF state, owner, fence, completed_at, abandoned_at, remembered_until ON work_claims
    FOR EACH ROW WHEN (NEW.state IN ('completed', 'abandoned')) EXECUTE FUNCTION work_claims_remember();

-- What was finished before there were triggers is remembered as well.
INSERT INTO work_claim_tombstones (task_id, owner, fence, outcome, finished_at, remembered_until)
    SELECT task_id, owner, fence, state, f.at, remembered_until
    FROM (SELECT *, coalesce(CASE state WHEN 'completed' THEN completed_at ELSE abandoned_at END,
                             clock_timestamp()) AS at
          FROM work_claims WHERE state IN ('completed', 'abandoned')) AS f
    WHERE remembered_until IS NULL OR remembered_until > f.at
    ON CONFLICT (task_id) DO NOTHING;
