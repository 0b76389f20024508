-- The latest health report that was recorded: one row, replaced by the next one.
CREATE TABLE wane.health_report (
  id       integer PRIMARY KEY CHECK (id = 1),
  read_at  timestamptz NOT NULL,
  stale_at timestamptz NOT NULL,   -- after that it says nothing about the present
  report   jsonb       NOT NULL
);
