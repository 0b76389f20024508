CREATE TABLE django_q_ormq (id integer NOT NULL, "key" text NOT NULL, payload text NOT NULL, "lock" <time>,
  PRIMARY KEY (id));
CREATE TABLE django_q_schedule (id integer NOT NULL, func text NOT NULL, repeats integer NOT NULL, next_run <time>,
  PRIMARY KEY (id));
CREATE TABLE django_q_task (func text NOT NULL, "result" text, stopped <time> NOT NULL, success boolean NOT NULL,
  id text NOT NULL, attempt_count integer NOT NULL, PRIMARY KEY (id));
