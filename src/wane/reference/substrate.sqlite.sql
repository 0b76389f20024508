-- The event and job substrate on SQLite, without the schema iu_core: see substrate.iu_core.sqlite.sql.
-- Timestamps are text, as CURRENT_TIMESTAMP writes it. Dead letters of routes carry their own copy of the event.

CREATE TABLE event_outbox (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    event_domain        TEXT    NOT NULL,
    event_type          TEXT    NOT NULL,
    event_stream        TEXT    NOT NULL,
    event_subject_table TEXT,
    event_subject_ref   TEXT,
    correlation_id      TEXT,
    actor               TEXT    NOT NULL,
    payload             TEXT    NOT NULL,
    created_at          TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX event_outbox_age         ON event_outbox (created_at, id);
CREATE INDEX event_outbox_stream      ON event_outbox (event_domain, event_type, event_stream);
CREATE INDEX event_outbox_correlation ON event_outbox (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX event_outbox_subject     ON event_outbox (event_subject_table, event_subject_ref)
    WHERE event_subject_table IS NOT NULL AND event_subject_ref IS NOT NULL;

CREATE TABLE event_read (
    event_id INTEGER NOT NULL REFERENCES event_outbox (id),
    reader   TEXT    NOT NULL,
    read_at  TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (event_id, reader)
);

CREATE TABLE event_pending (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    event_domain TEXT    NOT NULL,
    event_type   TEXT    NOT NULL,
    event_stream TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    created_at   TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    drained_at   TEXT
);
CREATE INDEX event_pending_age ON event_pending (drained_at, id);
CREATE INDEX event_pending_since ON event_pending (created_at, id);

CREATE TABLE iu_sql_event_route (
    route_code   TEXT    NOT NULL PRIMARY KEY,
    event_domain TEXT    NOT NULL,
    event_type   TEXT    NOT NULL,
    target       TEXT    NOT NULL,
    enabled      INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1))
);

CREATE TABLE iu_route_worker_cursor (
    worker        TEXT    NOT NULL PRIMARY KEY,
    last_event_id INTEGER NOT NULL DEFAULT 0,
    updated_at    TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE iu_route_dead_letter (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    route_code      TEXT    NOT NULL REFERENCES iu_sql_event_route (route_code),
    event_id        INTEGER NOT NULL,
    payload         TEXT    NOT NULL,
    error           TEXT    NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 1,
    first_failed_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    last_failed_at  TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    resolved_at     TEXT,
    resolved_by     TEXT
);
CREATE INDEX iu_route_dead_letter_age ON iu_route_dead_letter (resolved_at, id);
CREATE INDEX iu_route_dead_letter_since ON iu_route_dead_letter (first_failed_at, id);

CREATE TABLE iu_auto_instantiate_event_log (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id   INTEGER NOT NULL,
    template   TEXT    NOT NULL,
    outcome    TEXT    NOT NULL,
    created_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX iu_auto_instantiate_event_log_age ON iu_auto_instantiate_event_log (created_at, id);

CREATE TABLE iu_lifecycle_log (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    unit_ref   TEXT    NOT NULL,
    transition TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    created_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE iu_vector_sync_point (
    unit_ref    TEXT NOT NULL PRIMARY KEY,
    point_id    TEXT NOT NULL UNIQUE,
    content_sha TEXT NOT NULL,
    synced_at   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE job_queue (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    kind        TEXT    NOT NULL,
    dedupe_key  TEXT    NOT NULL UNIQUE,
    status      TEXT    NOT NULL DEFAULT 'queued'
                CHECK (status IN ('queued', 'running', 'failed', 'succeeded', 'cancelled', 'cleaned')),
    attempts    INTEGER NOT NULL DEFAULT 0,
    payload     TEXT    NOT NULL,
    locked_by   TEXT,
    enqueued_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    started_at  TEXT,
    finished_at TEXT
);
CREATE INDEX job_queue_age  ON job_queue (status, finished_at, id);
CREATE INDEX job_queue_next ON job_queue (status, enqueued_at, id);

CREATE TABLE job_dead_letter (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id          INTEGER NOT NULL REFERENCES job_queue (id),
    error           TEXT    NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 1,
    first_failed_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    last_failed_at  TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    resolved_at     TEXT,
    resolved_by     TEXT
);
CREATE INDEX job_dead_letter_age ON job_dead_letter (resolved_at, id);
CREATE INDEX job_dead_letter_since ON job_dead_letter (first_failed_at, id);
CREATE INDEX job_dead_letter_job ON job_dead_letter (job_id);

CREATE TABLE queue_heartbeat (
    worker  TEXT NOT NULL PRIMARY KEY,
    role    TEXT NOT NULL CHECK (role IN ('worker', 'scheduler')),
    beat_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE dot_iu_runtime_lease (
    executor   TEXT    NOT NULL PRIMARY KEY,
    holder     TEXT,
    fence      INTEGER NOT NULL DEFAULT 0,
    expires_at TEXT
);

CREATE TABLE dot_iu_command_run (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    command      TEXT    NOT NULL,
    arguments    TEXT    NOT NULL,
    requested_by TEXT    NOT NULL,
    status       TEXT    NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'succeeded', 'failed')),
    exit_code    INTEGER,
    started_at   TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    finished_at  TEXT
);
CREATE INDEX dot_iu_command_run_age ON dot_iu_command_run (status, finished_at, id);
CREATE INDEX dot_iu_command_run_since ON dot_iu_command_run (status, started_at, id);
