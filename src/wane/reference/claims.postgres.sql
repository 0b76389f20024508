-- Work claims on PostgreSQL.

CREATE TABLE work_claims (
    task_id      text        NOT NULL PRIMARY KEY,
    state        text        NOT NULL DEFAULT 'available'
                 CHECK (state IN ('available', 'claimed', 'completed', 'abandoned')),
    owner        text,
    fence        bigint      NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    claimed_at   timestamptz,
    expires_at   timestamptz,
    completed_at timestamptz,
    abandoned_at timestamptz,
    reason       text
);
CREATE INDEX work_claims_completed ON work_claims (state, completed_at, task_id);
CREATE INDEX work_claims_abandoned ON work_claims (state, abandoned_at, task_id);
CREATE INDEX work_claims_expiry    ON work_claims (state, expires_at, task_id);

CREATE TABLE work_claim_tombstones (
    task_id          text        NOT NULL PRIMARY KEY,
    fence            bigint      NOT NULL,
    outcome          text        NOT NULL CHECK (outcome IN ('completed', 'abandoned')),
    pruned_at        timestamptz NOT NULL DEFAULT now(),
    remembered_until timestamptz
);
CREATE INDEX work_claim_tombstones_expiry ON work_claim_tombstones (remembered_until, task_id);
