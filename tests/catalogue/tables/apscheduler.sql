CREATE TABLE metadata (schema_version integer NOT NULL);
CREATE TABLE tasks (id text NOT NULL PRIMARY KEY, func text, job_executor text NOT NULL, running_jobs integer NOT NULL);
CREATE TABLE schedules (id text NOT NULL PRIMARY KEY, task_id text NOT NULL, "trigger" text, paused boolean NOT NULL,
  next_fire_time <time>, acquired_by text, acquired_until <time>);
CREATE TABLE jobs (id text NOT NULL PRIMARY KEY, task_id text NOT NULL, schedule_id text,
  result_expiration_time bigint, created_at <time> NOT NULL, acquired_by text, acquired_until <time>);
CREATE TABLE job_results (job_id text NOT NULL PRIMARY KEY, outcome text NOT NULL, started_at <time>,
  finished_at <time> NOT NULL, expires_at <time> NOT NULL);
