CREATE TABLE django_tasks_database_dbtaskresult (id text NOT NULL, status text NOT NULL, task_path text NOT NULL,
  queue_name text NOT NULL, backend_name text NOT NULL, finished_at <time>, PRIMARY KEY (id));
