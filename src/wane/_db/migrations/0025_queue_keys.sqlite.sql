-- Most messages are their own key, so that the index of ids finds them by it: an entry here would be one more page that
-- every enqueue writes. That no two messages have one key is checked by the statement that stores them.
DROP INDEX wane_message_key;
CREATE UNIQUE INDEX wane_message_key ON wane_message (pool, idempotency_key) WHERE idempotency_key <> message_id;
