-- The schema iu_core of the substrate on SQLite: a database file of its own, attached as iu_core.

CREATE TABLE iu_staging_record (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    source     TEXT    NOT NULL,
    status     TEXT    NOT NULL DEFAULT 'staged'
               CHECK (status IN ('staged', 'validating', 'promoted', 'rejected', 'expired')),
    created_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX iu_staging_record_age ON iu_staging_record (status, created_at, id);

CREATE TABLE iu_staging_payload (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    record_id INTEGER NOT NULL REFERENCES iu_staging_record (id),
    part      INTEGER NOT NULL,
    payload   TEXT    NOT NULL,
    UNIQUE (record_id, part)
);
