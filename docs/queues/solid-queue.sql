-- Tables of Solid Queue 1.6 on SQLite, with the columns that matter, and jobs of the last ten days.
CREATE TABLE solid_queue_jobs (id integer PRIMARY KEY, queue_name text NOT NULL, class_name text NOT NULL,
  arguments text, active_job_id text, scheduled_at datetime, finished_at datetime, created_at datetime NOT NULL);
CREATE INDEX index_solid_queue_jobs_on_finished_at ON solid_queue_jobs (finished_at);
CREATE TABLE solid_queue_ready_executions (id integer PRIMARY KEY, created_at datetime NOT NULL,
  job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_claimed_executions (id integer PRIMARY KEY, created_at datetime NOT NULL, process_id bigint,
  job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_blocked_executions (id integer PRIMARY KEY, created_at datetime NOT NULL,
  expires_at datetime NOT NULL, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_scheduled_executions (id integer PRIMARY KEY, created_at datetime NOT NULL,
  scheduled_at datetime NOT NULL, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_failed_executions (id integer PRIMARY KEY, created_at datetime NOT NULL, error text,
  job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_recurring_executions (id integer PRIMARY KEY, created_at datetime NOT NULL,
  task_key text NOT NULL, run_at datetime NOT NULL,
  job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
CREATE TABLE solid_queue_recurring_tasks (id integer PRIMARY KEY, key text NOT NULL UNIQUE, schedule text NOT NULL);
CREATE TABLE solid_queue_pauses (id integer PRIMARY KEY, queue_name text NOT NULL UNIQUE);
CREATE TABLE solid_queue_processes (id integer PRIMARY KEY, kind text NOT NULL, last_heartbeat_at datetime NOT NULL);
CREATE TABLE solid_queue_semaphores (id integer PRIMARY KEY, key text NOT NULL UNIQUE, value integer NOT NULL,
  expires_at datetime NOT NULL);

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2600)
INSERT INTO solid_queue_jobs SELECT i, 'default', iif(i % 4 = 0, 'ReportJob', 'MailJob'), '{}', NULL, NULL,
  iif(i <= 2400, strftime('%Y-%m-%d %H:%M:%f000', 'now', '-' || (i * 6) || ' minutes'), NULL),
  strftime('%Y-%m-%d %H:%M:%f000', 'now', '-' || (i * 6 + 1) || ' minutes') FROM n;
-- 150 jobs failed, one a day; 50 wait.
INSERT INTO solid_queue_failed_executions (job_id, error, created_at)
  SELECT id, 'Net::ReadTimeout', strftime('%Y-%m-%d %H:%M:%f000', 'now', '-' || (id - 2400) || ' days')
  FROM solid_queue_jobs WHERE id BETWEEN 2401 AND 2550;
INSERT INTO solid_queue_ready_executions (job_id, created_at)
  SELECT id, strftime('%Y-%m-%d %H:%M:%f000', 'now') FROM solid_queue_jobs WHERE id > 2550;
INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at)
  SELECT id, 'report', finished_at, finished_at FROM solid_queue_jobs WHERE id <= 2400 AND class_name = 'ReportJob';
