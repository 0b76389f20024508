-- Work claims on SQLite. Timestamps are text in UTC, as CURRENT_TIMESTAMP writes it.

CREATE TABLE work_claims (
    task_id          TEXT    NOT NULL PRIMARY KEY,
    state            TEXT    NOT NULL DEFAULT 'available'
                     CHECK (state IN ('available', 'claimed', 'completed', 'abandoned')),
    owner            TEXT,
    fence            INTEGER NOT NULL DEFAULT 0,
    created_at       TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    claimed_at       TEXT,
    expires_at       TEXT,
    completed_at     TEXT,
    abandoned_at     TEXT,
    reason           TEXT,
    remembered_until TEXT
);
CREATE INDEX work_claims_available ON work_claims (state, created_at, task_id) WHERE state = 'available';
CREATE INDEX work_claims_completed ON work_claims (state, completed_at, task_id);
CREATE INDEX work_claims_abandoned ON work_claims (state, abandoned_at, task_id);
CREATE INDEX work_claims_expiry ON work_claims (state, expires_at, task_id);

-- What is remembered of finished work, whatever becomes of its row.
CREATE TABLE work_claim_tombstones (
    task_id          TEXT    NOT NULL PRIMARY KEY,
    owner            TEXT,
    fence            INTEGER NOT NULL,
    outcome          TEXT    NOT NULL CHECK (outcome IN ('completed', 'abandoned')),
    finished_at      TEXT    NOT NULL,
    remembered_until TEXT
);
CREATE INDEX work_claim_tombstones_expiry ON work_claim_tombstones (remembered_until, task_id);

-- Fences of all tasks come from one counter, so no fence is ever given out twice.
CREATE TABLE wane_claim_fence (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
);
INSERT INTO wane_claim_fence (id, last) SELECT 1, max(
    coalesce((SELECT max(fence) FROM work_claims), 0), coalesce((SELECT max(fence) FROM work_claim_tombstones), 0));

-- Finished work is remembered in the transaction that finishes it, by any process, and forgotten in the one that opens it again. Nothing
-- happens when a row is deleted, so no way of deleting one can lose the memory.
CREATE TRIGGER work_claims_inserted AFTER INSERT ON work_claims WHEN NEW.state IN ('completed', 'abandoned')
BEGIN
    DELETE FROM work_claim_tombstones WHERE task_id = NEW.task_id;
    INSERT INTO work_claim_tombstones (task_id, owner, fence, outcome, finished_at, remembered_until)
        SELECT NEW.task_id, NEW.owner, NEW.fence, NEW.state, f.at, NEW.remembered_until
        FROM (SELECT coalesce(CASE NEW.state WHEN 'completed' THEN NEW.completed_at ELSE NEW.abandoned_at END,
                              strftime('%Y-%m-%d %H:%M:%f', 'now')) AS at) AS f
        WHERE NEW.remembered_until IS NULL OR NEW.remembered_until > f.at;
END;
CREATE TRIGGER work_claims_reopened AFTER UPDATE OF state ON work_claims
WHEN OLD.state IN ('completed', 'abandoned') AND NEW.state NOT IN ('completed', 'abandoned')
BEGIN
    DELETE FROM work_claim_tombstones WHERE task_id = NEW.task_id;
END;
CREATE TRIGGER work_claims_finished
AFTER UPDATE OF state, owner, fence, completed_at, abandoned_at, remembered_until ON work_claims
WHEN NEW.state IN ('completed', 'abandoned')
BEGIN
    DELETE FROM work_claim_tombstones WHERE task_id = NEW.task_id;
    INSERT INTO work_claim_tombstones (task_id, owner, fence, outcome, finished_at, remembered_until)
        SELECT NEW.task_id, NEW.owner, NEW.fence, NEW.state, f.at, NEW.remembered_until
        FROM (SELECT coalesce(CASE NEW.state WHEN 'completed' THEN NEW.completed_at ELSE NEW.abandoned_at END,
                              strftime('%Y-%m-%d %H:%M:%f', 'now')) AS at) AS f
        WHERE NEW.remembered_until IS NULL OR NEW.remembered_until > f.at;
END;

-- What was finished before there were triggers is remembered as well.
INSERT INTO work_claim_tombstones (task_id, owner, fence, outcome, finished_at, remembered_until)
    SELECT task_id, owner, fence, state, f.at, remembered_until
    FROM (SELECT *, coalesce(CASE state WHEN 'completed' THEN completed_at ELSE abandoned_at END,
                             strftime('%Y-%m-%d %H:%M:%f', 'now')) AS at
          FROM work_claims WHERE state IN ('completed', 'abandoned')) AS f
    WHERE remembered_until IS NULL OR remembered_until > f.at
    ON CONFLICT (task_id) DO NOTHING;
