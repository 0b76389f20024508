-- Webhooks on SQLite. Timestamps are unix seconds.
-- Jobs name their event without a foreign key: the queue serves other work too.

CREATE TABLE knocker_endpoints (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    path       TEXT    NOT NULL UNIQUE,
    provider   TEXT,
    enabled    INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    created_at INTEGER NOT NULL
);

CREATE TABLE knocker_events (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint_id       INTEGER NOT NULL REFERENCES knocker_endpoints (id),
    event_type        TEXT,
    provider_event_id TEXT,
    dedupe_key        TEXT,
    status            TEXT    NOT NULL DEFAULT 'received'
                      CHECK (status IN ('received', 'processing', 'handled', 'ignored', 'failed', 'dead')),
    attempt_count     INTEGER NOT NULL DEFAULT 0,
    headers_json      TEXT    NOT NULL,
    body              BLOB    NOT NULL,
    last_error        TEXT,
    received_at       INTEGER NOT NULL,
    handled_at        INTEGER
);
CREATE UNIQUE INDEX knocker_events_dedupe ON knocker_events (endpoint_id, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX knocker_events_age ON knocker_events (status, received_at, id);

CREATE TABLE knocker_attempts (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id     INTEGER NOT NULL REFERENCES knocker_events (id),
    outcome      TEXT    NOT NULL CHECK (outcome IN ('handled', 'ignored', 'failed')),
    error        TEXT,
    duration_ms  INTEGER NOT NULL,
    attempted_at INTEGER NOT NULL
);
CREATE INDEX knocker_attempts_event ON knocker_attempts (event_id);

CREATE TABLE knocker_deliveries (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint_id          INTEGER NOT NULL REFERENCES knocker_endpoints (id),
    event_id             INTEGER REFERENCES knocker_events (id),
    provider_delivery_id TEXT,
    signature_valid      INTEGER CHECK (signature_valid IN (0, 1)),
    signature_error      TEXT,
    headers_json         TEXT    NOT NULL,
    body                 BLOB    NOT NULL,
    received_at          INTEGER NOT NULL
);
CREATE INDEX knocker_deliveries_event ON knocker_deliveries (event_id, received_at, id);

-- The queue's own table: a job names its event in its payload, so it has a column computed from that. It is all that the contract needs of
-- the queue, and a queue that is there already gets it by the two statements below the table.
CREATE TABLE _honker_live (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    queue            TEXT    NOT NULL,
    payload          TEXT    NOT NULL,
    state            TEXT    NOT NULL DEFAULT 'pending',
    priority         INTEGER NOT NULL DEFAULT 0,
    run_at           INTEGER NOT NULL,
    worker_id        TEXT,
    claim_expires_at INTEGER,
    attempts         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 3,
    expires_at       INTEGER
);
CREATE INDEX _honker_live_claim ON _honker_live (queue, priority DESC, run_at, id) WHERE state IN ('pending', 'processing');
ALTER TABLE _honker_live ADD COLUMN event_id INTEGER GENERATED ALWAYS AS (CASE WHEN NOT json_valid(payload) THEN NULL
    WHEN json_type(payload, '$.event_id') = 'integer' THEN json_extract(payload, '$.event_id') END) VIRTUAL;
CREATE INDEX _honker_live_event ON _honker_live (event_id, queue);
