-- Webhooks on SQLite. Moments are unix seconds.
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

CREATE TABLE knocker_live_jobs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_name    TEXT    NOT NULL,
    event_id      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    worker        TEXT,
    run_at        INTEGER NOT NULL,
    claimed_until INTEGER
);
CREATE INDEX knocker_live_jobs_event ON knocker_live_jobs (event_id, queue_name);
CREATE INDEX knocker_live_jobs_due   ON knocker_live_jobs (queue_name, run_at, id);
