-- A key is found by one comparison of texts, where one of arrays took several times as long; searches write the pool so
-- that only this index serves them (see 0002).
DROP INDEX wane.message_key;
CREATE UNIQUE INDEX message_key ON wane.message (idempotency_key, pool);

-- The next older message of the kind, not the oldest: behind the head of a busy queue lie entries of messages that left,
-- until the next VACUUM, and every enqueue walked over all of them.
CREATE OR REPLACE FUNCTION wane.message_wakes() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO wane.wakeup (pool, bumps) VALUES (NEW.pool, 1);
  PERFORM FROM wane.message WHERE ARRAY[pool, kind] = ARRAY[NEW.pool, NEW.kind] AND state = 'ready' AND seq < NEW.seq
    ORDER BY seq DESC LIMIT 1;
  -- Commits that notify go one after the other. Who takes an older one of the kind finds this one too.
  IF NOT FOUND THEN
    PERFORM pg_notify('wane_wakeup', NEW.pool);
  END IF;
  RETURN NULL;
END $$;
