-- The cleanup delivery queue: leased messages, one row from enqueue to the end of its life.
CREATE TABLE wane.message (
  pool            text NOT NULL,
  message_id      text NOT NULL,
  idempotency_key text NOT NULL,
  work_queue_id   text,
  kind            text NOT NULL,
  target          json NOT NULL,
  data            json NOT NULL,
  state           text NOT NULL CHECK (state IN ('ready', 'delayed', 'reserved', 'done', 'dead')),
  seq             bigint GENERATED ALWAYS AS IDENTITY,
  deliveries      integer NOT NULL DEFAULT 0,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  due_at          timestamptz,  -- reserved: the end of its lease; delayed: when it becomes ready
  token_hash      text,         -- of the current reservation
  finished_at     timestamptz,  -- done or dead since
  forget_at       timestamptz,  -- done: when its key may be taken again; NULL: never
  reason          text,         -- why it is dead
  release_reason  text,         -- what the last release said
  resolved_at     timestamptz,  -- a dead letter that somebody has dealt with
  resolved_by     text,
  PRIMARY KEY (pool, message_id)
);
-- Names are put together where an index serves those alone who look for all of them, and "… IS NOT NULL" keeps all others away from it: it is implied by a
-- search for exactly its key. As columns of their own, or without that, a wrong index would do as well: to the planner all of them cost the same while
-- they are nearly empty, and for a queue they are whenever somebody looks.
CREATE UNIQUE INDEX message_key ON wane.message ((ARRAY[pool, idempotency_key]));
-- Each state has its own index, so that finding the next message costs the same whatever is waiting or done.
CREATE INDEX message_ready ON wane.message (pool, seq) WHERE state = 'ready' AND pool IS NOT NULL;
CREATE INDEX message_ready_kind ON wane.message ((ARRAY[pool, kind]), seq) WHERE state = 'ready' AND ARRAY[pool, kind] IS NOT NULL;
CREATE INDEX message_ready_queue ON wane.message ((ARRAY[pool, work_queue_id]), seq)
  WHERE state = 'ready' AND work_queue_id IS NOT NULL AND ARRAY[pool, work_queue_id] IS NOT NULL;
CREATE INDEX message_ready_queue_kind ON wane.message ((ARRAY[pool, work_queue_id, kind]), seq)
  WHERE state = 'ready' AND work_queue_id IS NOT NULL AND ARRAY[pool, work_queue_id, kind] IS NOT NULL;
CREATE INDEX message_reserved ON wane.message (pool, due_at, seq) WHERE state = 'reserved';
CREATE INDEX message_delayed ON wane.message (pool, due_at, seq) WHERE state = 'delayed';
CREATE INDEX message_done ON wane.message (forget_at, pool, message_id) WHERE state = 'done';
CREATE INDEX message_dead ON wane.message ((ARRAY[pool, state]), seq) WHERE state = 'dead' AND ARRAY[pool, state] IS NOT NULL;
CREATE INDEX message_dead_kind ON wane.message ((ARRAY[pool, state, kind]), seq) WHERE state = 'dead' AND ARRAY[pool, state, kind] IS NOT NULL;
CREATE INDEX message_open ON wane.message (pool, seq) WHERE state = 'dead' AND resolved_at IS NULL AND pool IS NOT NULL;
CREATE INDEX message_open_kind ON wane.message ((ARRAY[pool, kind]), seq)
  WHERE state = 'dead' AND resolved_at IS NULL AND ARRAY[pool, kind] IS NOT NULL;
CREATE INDEX message_resolved ON wane.message (resolved_at, pool, message_id) WHERE state = 'dead' AND resolved_at IS NOT NULL;
-- Rows change state a few times and leave: half a page of room keeps their versions together, and cleaning up must not wait for a fifth of the table.
ALTER TABLE wane.message SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- Wakeups: a pool's sequence is the sum of its rows. Every change adds a row and waits for nobody; rows are folded together later.
CREATE TABLE wane.wakeup (
  pool  text   NOT NULL,
  bumps bigint NOT NULL
);
CREATE INDEX wakeup_pool ON wane.wakeup (pool) INCLUDE (bumps);

-- A wakeup commits with the change that caused it, whoever made the change.
-- The plan is kept: one that was made while the table was nearly empty must not read all of it when it is full.
CREATE FUNCTION wane.message_wakes() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
  INSERT INTO wane.wakeup (pool, bumps) VALUES (NEW.pool, 1);
  -- Commits that notify go one after the other. Where an older one of the kind is ready, whoever takes that finds this one too.
  IF NOT EXISTS (SELECT FROM wane.message WHERE ARRAY[pool, kind] = ARRAY[NEW.pool, NEW.kind] AND state = 'ready' AND seq < NEW.seq) THEN
    PERFORM pg_notify('wane_wakeup', NEW.pool);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER message_enqueued AFTER INSERT ON wane.message FOR EACH ROW
  WHEN (NEW.state = 'ready') EXECUTE FUNCTION wane.message_wakes();
CREATE TRIGGER message_ready_again AFTER UPDATE ON wane.message FOR EACH ROW
  WHEN (NEW.state = 'ready' AND OLD.state <> 'ready') EXECUTE FUNCTION wane.message_wakes();
