-- Leases: timed rights. Rows are never deleted, so a fence never repeats.
CREATE TABLE wane.lease (
  name     text PRIMARY KEY,
  holder   text        NOT NULL,
  fence    bigint      NOT NULL,
  taken_at timestamptz NOT NULL,
  until    timestamptz NOT NULL
);

-- When each scheduler's next window begins, so that a restart neither starves nor doubles a sweep.
CREATE TABLE wane.schedule (
  scheduler text PRIMARY KEY,
  window_at timestamptz,           -- the window that was enqueued last
  due_at    timestamptz NOT NULL,  -- when the next one begins
  ticked_at timestamptz,
  ticked_by text
);

-- Who is alive. Rows change in place; there is no history in them.
CREATE TABLE wane.heartbeat (
  executor      text PRIMARY KEY,
  role          text        NOT NULL,
  doing         text        NOT NULL,
  fingerprint   text        NOT NULL,
  every_seconds double precision NOT NULL,
  started_at    timestamptz NOT NULL,
  beat_at       timestamptz NOT NULL
);
CREATE INDEX heartbeat_silent ON wane.heartbeat (beat_at, executor);

-- The contract in force: runners with another one are refused.
CREATE TABLE wane.contract (
  id          integer PRIMARY KEY CHECK (id = 1),
  fingerprint text        NOT NULL,
  adopted_at  timestamptz NOT NULL,
  adopted_by  text        NOT NULL
);
