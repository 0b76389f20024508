-- Tables of River 0.44 on SQLite, with the columns that matter, and jobs of the last ten days.
CREATE TABLE river_job (id integer PRIMARY KEY, state text NOT NULL, kind text NOT NULL, queue text NOT NULL,
  attempt integer NOT NULL, max_attempts integer NOT NULL, created_at timestamp NOT NULL, scheduled_at timestamp NOT NULL,
  attempted_at timestamp, finalized_at timestamp);
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
CREATE TABLE river_queue (name text NOT NULL PRIMARY KEY, created_at timestamp NOT NULL, paused_at timestamp,
  updated_at timestamp NOT NULL);
CREATE TABLE river_leader (name text NOT NULL PRIMARY KEY, leader_id text NOT NULL, elected_at timestamp NOT NULL,
  expires_at timestamp NOT NULL);
CREATE TABLE river_migration (line text NOT NULL, version integer NOT NULL, created_at timestamp NOT NULL,
  PRIMARY KEY (line, version));
CREATE TABLE river_notification (id integer PRIMARY KEY, created_at timestamp NOT NULL, payload text NOT NULL,
  topic text NOT NULL);
CREATE INDEX river_notification_created_at_idx ON river_notification (created_at);

-- Of ten jobs eight completed, one was discarded and one runs.
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
INSERT INTO river_job SELECT i,
  CASE i % 10 WHEN 0 THEN 'running' WHEN 1 THEN 'discarded' ELSE 'completed' END, 'report', iif(i % 3 = 0, 'audit', 'mail'),
  1, 25, t, t, t, iif(i % 10 = 0, NULL, t)
FROM (SELECT i, strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || (i * 12) || ' minutes') AS t FROM n);
INSERT INTO river_queue SELECT name, datetime('now', '-90 days'), NULL, datetime('now', age)
  FROM (SELECT 'mail' AS name, '-1 minutes' AS age UNION ALL SELECT 'audit', '-1 minutes' UNION ALL SELECT 'old', '-9 days');
