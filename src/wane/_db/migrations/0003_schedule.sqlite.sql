-- Leases: timed rights. Rows are never deleted, so a fence never repeats.
CREATE TABLE wane_lease (
  name     TEXT PRIMARY KEY,
  holder   TEXT        NOT NULL,
  fence    INTEGER      NOT NULL,
  taken_at TEXT NOT NULL,
  until    TEXT NOT NULL
);

-- When each scheduler's next window begins, so that a restart neither starves nor doubles a sweep.
CREATE TABLE wane_schedule (
  scheduler TEXT PRIMARY KEY,
  window_at TEXT,           -- the window that was enqueued last
  due_at    TEXT NOT NULL,  -- when the next one begins
  ticked_at TEXT,
  ticked_by text
);

-- Who is alive. Rows change in place; there is no history in them.
CREATE TABLE wane_heartbeat (
  executor      TEXT PRIMARY KEY,
  role          TEXT        NOT NULL,
  doing         TEXT        NOT NULL,
  fingerprint   TEXT        NOT NULL,
  every_seconds REAL NOT NULL,
  started_at    TEXT NOT NULL,
  beat_at       TEXT NOT NULL
);
CREATE INDEX wane_heartbeat_silent ON wane_heartbeat (beat_at, executor);

-- The contract in force: runners with another one are refused.
CREATE TABLE wane_contract (
  id          INTEGER PRIMARY KEY CHECK (id = 1),
  fingerprint TEXT        NOT NULL,
  adopted_at  TEXT NOT NULL,
  adopted_by  TEXT        NOT NULL
);
