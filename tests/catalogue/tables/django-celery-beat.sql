CREATE TABLE django_celery_beat_clockedschedule (id integer NOT NULL, clocked_time <time> NOT NULL, PRIMARY KEY (id));
CREATE TABLE django_celery_beat_crontabschedule (id integer NOT NULL, minute text NOT NULL, PRIMARY KEY (id));
CREATE TABLE django_celery_beat_intervalschedule (id integer NOT NULL, every integer NOT NULL, PRIMARY KEY (id));
CREATE TABLE django_celery_beat_solarschedule (id integer NOT NULL, event text NOT NULL, PRIMARY KEY (id));
CREATE TABLE django_celery_beat_periodictask (id integer NOT NULL, task text NOT NULL, enabled boolean NOT NULL,
  date_changed <time> NOT NULL, crontab_id integer, interval_id integer, solar_id integer, one_off boolean NOT NULL,
  clocked_id integer, PRIMARY KEY (id), FOREIGN KEY (clocked_id) REFERENCES django_celery_beat_clockedschedule (id),
  FOREIGN KEY (crontab_id) REFERENCES django_celery_beat_crontabschedule (id),
  FOREIGN KEY (interval_id) REFERENCES django_celery_beat_intervalschedule (id),
  FOREIGN KEY (solar_id) REFERENCES django_celery_beat_solarschedule (id));
CREATE INDEX django_celery_beat_periodictask_clocked_id ON django_celery_beat_periodictask (clocked_id);
CREATE INDEX django_celery_beat_periodictask_crontab_id ON django_celery_beat_periodictask (crontab_id);
CREATE INDEX django_celery_beat_periodictask_interval_id ON django_celery_beat_periodictask (interval_id);
CREATE INDEX django_celery_beat_periodictask_solar_id ON django_celery_beat_periodictask (solar_id);
CREATE TABLE django_celery_beat_periodictasks (ident integer NOT NULL, last_update <time> NOT NULL,
  PRIMARY KEY (ident));
