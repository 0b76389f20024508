-- Tables of Oban 2.22 for Elixir, with the columns that matter, and jobs of the last ten days.
CREATE TYPE oban_job_state AS ENUM ('available', 'suspended', 'scheduled', 'executing', 'retryable', 'completed',
  'discarded', 'cancelled');
CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL, queue text NOT NULL, worker text NOT NULL,
  args jsonb NOT NULL DEFAULT '{}', inserted_at timestamp NOT NULL, scheduled_at timestamp NOT NULL,
  attempted_at timestamp, cancelled_at timestamp, completed_at timestamp, discarded_at timestamp);
CREATE INDEX oban_jobs_state_cancelled_at_index ON oban_jobs (state, cancelled_at);
CREATE INDEX oban_jobs_state_discarded_at_index ON oban_jobs (state, discarded_at);
CREATE UNLOGGED TABLE oban_peers (name text NOT NULL PRIMARY KEY, node text NOT NULL, started_at timestamp NOT NULL,
  expires_at timestamp NOT NULL);

-- Of ten jobs eight completed, one was discarded and one is to be retried.
INSERT INTO oban_jobs (state, queue, worker, inserted_at, scheduled_at, attempted_at, completed_at, discarded_at)
SELECT (CASE i % 10 WHEN 0 THEN 'retryable' WHEN 1 THEN 'discarded' ELSE 'completed' END)::oban_job_state, 'default',
  'Mailer', t, t, t, CASE WHEN i % 10 > 1 THEN t END, CASE i % 10 WHEN 1 THEN t END
FROM (SELECT i, timezone('UTC', now()) - i * interval '12 minutes' AS t FROM generate_series(1, 1200) AS s (i)) AS times;
