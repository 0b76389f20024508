-- Indexes of plain columns are half as large as those of arrays (see 0002). Only one of them may serve a search, whatever
-- the planner believes about the table. A search by one more column writes the state as a range that only ready, or
-- only dead, messages are in: it implies neither the state of an index of fewer columns nor a narrower range, and the
-- columns that are not NULL keep it away from indexes of other columns.
DROP INDEX wane.message_ready_kind, wane.message_ready_queue, wane.message_ready_queue_kind,
  wane.message_dead, wane.message_dead_kind, wane.message_open, wane.message_open_kind;
CREATE INDEX message_ready_kind ON wane.message (pool, kind, seq)
  WHERE state COLLATE "C" BETWEEN 'ready' AND 'ready' AND kind IS NOT NULL;
CREATE INDEX message_ready_queue ON wane.message (pool, work_queue_id, seq)
  WHERE state COLLATE "C" BETWEEN 'ready' AND 'ready' AND work_queue_id IS NOT NULL;
CREATE INDEX message_ready_queue_kind ON wane.message (pool, work_queue_id, kind, seq)
  WHERE state COLLATE "C" BETWEEN 'read' AND 'ready' AND work_queue_id IS NOT NULL AND kind IS NOT NULL;
CREATE INDEX message_dead ON wane.message (pool, seq) WHERE state = 'dead';
CREATE INDEX message_dead_kind ON wane.message (pool, kind, seq)
  WHERE state COLLATE "C" BETWEEN 'dead' AND 'dead' AND kind IS NOT NULL;
CREATE INDEX message_open ON wane.message (pool, seq)
  WHERE state COLLATE "C" BETWEEN 'dead' AND 'dead' AND resolved_at IS NULL;
CREATE INDEX message_open_kind ON wane.message (pool, kind, seq)
  WHERE state COLLATE "C" BETWEEN 'dea' AND 'dead' AND resolved_at IS NULL AND kind IS NOT NULL;

CREATE OR REPLACE FUNCTION wane.message_wakes() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO wane.wakeup (pool, bumps) VALUES (NEW.pool, 1);
  -- The next older message of the kind, not the oldest (see 0024).
  PERFORM FROM wane.message WHERE pool = NEW.pool AND kind = NEW.kind
    AND state COLLATE "C" BETWEEN 'ready' AND 'ready' AND seq < NEW.seq
    ORDER BY seq DESC LIMIT 1;
  -- Commits that notify go one after the other. Who takes an older one of the kind finds this one too.
  IF NOT FOUND THEN
    PERFORM pg_notify('wane_wakeup', NEW.pool);
  END IF;
  RETURN NULL;
END $$;
