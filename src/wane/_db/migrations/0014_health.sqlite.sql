-- The latest health report that was recorded: one row, replaced by the next one.
CREATE TABLE wane_health_report (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  read_at  TEXT NOT NULL,
  stale_at TEXT NOT NULL,          -- after that it says nothing about the present
  report   TEXT NOT NULL
);
