-- State store on SQLite. Timestamps without a unit in their name are text, as CURRENT_TIMESTAMP writes it.
-- AUTOINCREMENT keeps a pruned number from being given out again.

CREATE TABLE presence_entries (
    tenant_id       TEXT    NOT NULL,
    instance_id     TEXT    NOT NULL,
    role            TEXT    NOT NULL CHECK (role IN ('gateway', 'client', 'node')),
    connection_id   TEXT,
    host            TEXT,
    version         TEXT,
    metadata_json   TEXT    NOT NULL DEFAULT '{}',
    connected_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    expires_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, instance_id)
);
CREATE INDEX presence_entries_expiry ON presence_entries (expires_at_ms, tenant_id, instance_id);
CREATE INDEX presence_entries_cap    ON presence_entries (tenant_id, last_seen_at_ms, instance_id);

CREATE TABLE connections (
    tenant_id         TEXT    NOT NULL,
    connection_id     TEXT    NOT NULL,
    edge_id           TEXT    NOT NULL,
    principal_id      TEXT    NOT NULL,
    protocol_version  INTEGER NOT NULL DEFAULT 1,
    capabilities_json TEXT    NOT NULL DEFAULT '[]',
    connected_at_ms   INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    expires_at_ms     INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, connection_id)
);
CREATE INDEX connections_expiry ON connections (expires_at_ms, tenant_id, connection_id);

CREATE TABLE channel_inbound_dedupe (
    channel       TEXT    NOT NULL,
    message_id    TEXT    NOT NULL,
    inbox_id      INTEGER,
    expires_at_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, message_id)
);
CREATE INDEX channel_inbound_dedupe_expiry ON channel_inbound_dedupe (expires_at_ms, channel, message_id);

CREATE TABLE channel_inbox (
    inbox_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id           TEXT    NOT NULL,
    channel             TEXT    NOT NULL,
    thread_id           TEXT    NOT NULL,
    message_id          TEXT    NOT NULL,
    status              TEXT    NOT NULL DEFAULT 'queued'
                        CHECK (status IN ('queued', 'processing', 'completed', 'failed')),
    attempt             INTEGER NOT NULL DEFAULT 0,
    payload_json        TEXT    NOT NULL,
    lease_owner         TEXT,
    lease_expires_at_ms INTEGER,
    received_at_ms      INTEGER NOT NULL,
    processed_at        TEXT,
    error               TEXT
);
CREATE INDEX channel_inbox_age ON channel_inbox (status, received_at_ms, inbox_id);

CREATE TABLE channel_outbox (
    outbox_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id           TEXT    NOT NULL,
    inbox_id            INTEGER NOT NULL REFERENCES channel_inbox (inbox_id),
    channel             TEXT    NOT NULL,
    thread_id           TEXT    NOT NULL,
    dedupe_key          TEXT    NOT NULL UNIQUE,
    chunk_index         INTEGER NOT NULL DEFAULT 0,
    body                TEXT    NOT NULL,
    status              TEXT    NOT NULL DEFAULT 'queued'
                        CHECK (status IN ('queued', 'sending', 'sent', 'failed')),
    attempt             INTEGER NOT NULL DEFAULT 0,
    lease_owner         TEXT,
    lease_expires_at_ms INTEGER,
    created_at          TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    sent_at             TEXT,
    error               TEXT
);
CREATE INDEX channel_outbox_age   ON channel_outbox (status, sent_at, outbox_id);
CREATE INDEX channel_outbox_inbox ON channel_outbox (inbox_id);

CREATE TABLE lane_leases (
    tenant_id           TEXT    NOT NULL,
    key                 TEXT    NOT NULL,
    lane                TEXT    NOT NULL,
    lease_owner         TEXT    NOT NULL,
    lease_expires_at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key, lane)
);
CREATE INDEX lane_leases_expiry ON lane_leases (lease_expires_at_ms, tenant_id, key, lane);

CREATE TABLE workspace_leases (
    tenant_id           TEXT    NOT NULL,
    workspace_id        TEXT    NOT NULL,
    lease_owner         TEXT    NOT NULL,
    lease_expires_at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id)
);
CREATE INDEX workspace_leases_expiry ON workspace_leases (lease_expires_at_ms, tenant_id, workspace_id);

CREATE TABLE oauth_pending (
    tenant_id     TEXT NOT NULL,
    state         TEXT NOT NULL,
    provider_id   TEXT NOT NULL,
    pkce_verifier TEXT NOT NULL,
    redirect_uri  TEXT NOT NULL,
    scopes        TEXT NOT NULL,
    created_at    TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    expires_at    TEXT NOT NULL,
    PRIMARY KEY (tenant_id, state)
);
CREATE INDEX oauth_pending_expiry ON oauth_pending (expires_at, tenant_id, state);

CREATE TABLE oauth_refresh_leases (
    tenant_id           TEXT    NOT NULL,
    auth_profile_id     TEXT    NOT NULL,
    lease_owner         TEXT    NOT NULL,
    lease_expires_at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, auth_profile_id)
);
CREATE INDEX oauth_refresh_leases_expiry ON oauth_refresh_leases (lease_expires_at_ms, tenant_id, auth_profile_id);

CREATE TABLE models_dev_refresh_leases (
    key                 TEXT    NOT NULL PRIMARY KEY,
    lease_owner         TEXT    NOT NULL,
    lease_expires_at_ms INTEGER NOT NULL
);
CREATE INDEX models_dev_refresh_leases_expiry ON models_dev_refresh_leases (lease_expires_at_ms, key);

CREATE TABLE models_dev_cache (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    etag       TEXT,
    sha256     TEXT    NOT NULL,
    json       TEXT    NOT NULL,
    last_error TEXT,
    fetched_at TEXT,
    updated_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id      TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    target_edge_id TEXT,
    payload_json   TEXT    NOT NULL,
    created_at     TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX outbox_age ON outbox (created_at, id);

CREATE TABLE outbox_consumers (
    tenant_id      TEXT    NOT NULL,
    consumer_id    TEXT    NOT NULL,
    last_outbox_id INTEGER NOT NULL DEFAULT 0,
    updated_at     TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (tenant_id, consumer_id)
);
CREATE INDEX outbox_consumers_age ON outbox_consumers (updated_at, tenant_id, consumer_id);
