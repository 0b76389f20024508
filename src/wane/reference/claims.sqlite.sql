-- Work claims on SQLite. Moments are text, as CURRENT_TIMESTAMP writes it.

CREATE TABLE work_claims (
    task_id      TEXT    NOT NULL PRIMARY KEY,
    state        TEXT    NOT NULL DEFAULT 'available'
                 CHECK (state IN ('available', 'claimed', 'completed', 'abandoned')),
    owner        TEXT,
    fence        INTEGER NOT NULL DEFAULT 0,
    created_at   TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    claimed_at   TEXT,
    expires_at   TEXT,
    completed_at TEXT,
    abandoned_at TEXT,
    reason       TEXT
);
CREATE INDEX work_claims_completed ON work_claims (state, completed_at, task_id);
CREATE INDEX work_claims_abandoned ON work_claims (state, abandoned_at, task_id);
CREATE INDEX work_claims_expiry    ON work_claims (state, expires_at, task_id);

CREATE TABLE work_claim_tombstones (
    task_id          TEXT    NOT NULL PRIMARY KEY,
    fence            INTEGER NOT NULL,
    outcome          TEXT    NOT NULL CHECK (outcome IN ('completed', 'abandoned')),
    pruned_at        TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    remembered_until TEXT
);
CREATE INDEX work_claim_tombstones_expiry ON work_claim_tombstones (remembered_until, task_id);
