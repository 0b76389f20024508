-- The cleanup delivery queue: leased messages, one row from enqueue to the end of its life.
CREATE TABLE wane_message (
  seq             INTEGER PRIMARY KEY,
  pool            TEXT NOT NULL,
  message_id      TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  work_queue_id   TEXT,
  kind            TEXT NOT NULL,
  target          TEXT NOT NULL,
  data            TEXT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('ready', 'delayed', 'reserved', 'done', 'dead')),
  deliveries      INTEGER NOT NULL DEFAULT 0,
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  due_at          TEXT,  -- reserved: the end of its lease; delayed: when it becomes ready
  token_hash      TEXT,  -- of the current reservation
  finished_at     TEXT,  -- done or dead since
  forget_at       TEXT,  -- done: when its key may be taken again; NULL: never
  reason          TEXT,  -- why it is dead
  release_reason  TEXT,  -- what the last release said
  resolved_at     TEXT,  -- a dead letter that somebody has dealt with
  resolved_by     TEXT
);
CREATE UNIQUE INDEX wane_message_id ON wane_message (pool, message_id);
CREATE UNIQUE INDEX wane_message_key ON wane_message (pool, idempotency_key);
-- Each state has its own index, so that finding the next message costs the same whatever is waiting or done.
CREATE INDEX wane_message_ready ON wane_message (pool, seq) WHERE state = 'ready';
CREATE INDEX wane_message_ready_kind ON wane_message (pool, kind, seq) WHERE state = 'ready';
CREATE INDEX wane_message_ready_queue ON wane_message (pool, work_queue_id, seq) WHERE state = 'ready' AND work_queue_id IS NOT NULL;
CREATE INDEX wane_message_ready_queue_kind ON wane_message (pool, work_queue_id, kind, seq) WHERE state = 'ready' AND work_queue_id IS NOT NULL;
CREATE INDEX wane_message_reserved ON wane_message (pool, due_at) WHERE state = 'reserved';
CREATE INDEX wane_message_delayed ON wane_message (pool, due_at) WHERE state = 'delayed';
CREATE INDEX wane_message_done ON wane_message (forget_at, pool, message_id) WHERE state = 'done';
CREATE INDEX wane_message_dead ON wane_message (pool, seq) WHERE state = 'dead';
CREATE INDEX wane_message_dead_kind ON wane_message (pool, kind, seq) WHERE state = 'dead';
CREATE INDEX wane_message_open ON wane_message (pool, seq) WHERE state = 'dead' AND resolved_at IS NULL;
CREATE INDEX wane_message_open_kind ON wane_message (pool, kind, seq) WHERE state = 'dead' AND resolved_at IS NULL;
CREATE INDEX wane_message_resolved ON wane_message (resolved_at, pool, message_id) WHERE state = 'dead' AND resolved_at IS NOT NULL;

-- Wakeups: how many each pool has had.
CREATE TABLE wane_wakeup (
  pool  TEXT    PRIMARY KEY,
  bumps INTEGER NOT NULL
) WITHOUT ROWID;

-- A wakeup commits with the change that caused it, whoever made the change.
CREATE TRIGGER wane_message_enqueued AFTER INSERT ON wane_message WHEN NEW.state = 'ready' BEGIN
  INSERT INTO wane_wakeup (pool, bumps) VALUES (NEW.pool, 1) ON CONFLICT (pool) DO UPDATE SET bumps = bumps + 1;
END;
CREATE TRIGGER wane_message_ready_again AFTER UPDATE OF state ON wane_message WHEN NEW.state = 'ready' AND OLD.state <> 'ready' BEGIN
  INSERT INTO wane_wakeup (pool, bumps) VALUES (NEW.pool, 1) ON CONFLICT (pool) DO UPDATE SET bumps = bumps + 1;
END;

-- The moment that was told when the host's clock showed `host`: that clock may be set back, time may not.
CREATE TABLE wane_clock (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  latest TEXT NOT NULL,
  host   TEXT NOT NULL
);
