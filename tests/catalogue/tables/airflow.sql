CREATE TABLE asset (id integer NOT NULL, name text NOT NULL, uri text NOT NULL, PRIMARY KEY (id), UNIQUE (name, uri));
CREATE TABLE asset_active (name text NOT NULL, uri text NOT NULL, PRIMARY KEY (name, uri),
  FOREIGN KEY (name, uri) REFERENCES asset (name, uri) ON DELETE CASCADE);
CREATE TABLE asset_alias (id integer NOT NULL, PRIMARY KEY (id));
CREATE TABLE asset_alias_asset (alias_id integer NOT NULL, asset_id integer NOT NULL,
  PRIMARY KEY (alias_id, asset_id), FOREIGN KEY (alias_id) REFERENCES asset_alias (id) ON DELETE CASCADE,
  FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE);
CREATE INDEX asset_alias_asset_asset_id ON asset_alias_asset (asset_id);
CREATE TABLE asset_event (id integer NOT NULL, "timestamp" <time> NOT NULL, PRIMARY KEY (id));
CREATE TABLE asset_alias_asset_event (alias_id integer NOT NULL, event_id integer NOT NULL,
  PRIMARY KEY (alias_id, event_id), FOREIGN KEY (alias_id) REFERENCES asset_alias (id) ON DELETE CASCADE,
  FOREIGN KEY (event_id) REFERENCES asset_event (id) ON DELETE CASCADE);
CREATE INDEX asset_alias_asset_event_event_id ON asset_alias_asset_event (event_id);
CREATE TABLE dag_bundle (name text NOT NULL, PRIMARY KEY (name));
CREATE TABLE dag (dag_id text NOT NULL, bundle_name text NOT NULL, PRIMARY KEY (dag_id),
  FOREIGN KEY (bundle_name) REFERENCES dag_bundle (name));
CREATE INDEX dag_bundle_name ON dag (bundle_name);
CREATE TABLE asset_dag_run_queue (asset_id integer NOT NULL, target_dag_id text NOT NULL,
  PRIMARY KEY (asset_id, target_dag_id), FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE,
  FOREIGN KEY (target_dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX asset_dag_run_queue_target_dag_id ON asset_dag_run_queue (target_dag_id);
CREATE TABLE dag_version (id text NOT NULL, version_number integer NOT NULL, dag_id text NOT NULL,
  created_at <time> NOT NULL, PRIMARY KEY (id), FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_version_dag_id ON dag_version (dag_id);
CREATE TABLE backfill (id integer NOT NULL, PRIMARY KEY (id));
CREATE TABLE log_template (id integer NOT NULL, PRIMARY KEY (id));
CREATE TABLE dag_run (id integer NOT NULL, dag_id text NOT NULL, start_date <time>, state text, run_id text NOT NULL,
  run_type text NOT NULL, log_template_id integer, backfill_id integer, created_dag_version_id text, PRIMARY KEY (id),
  UNIQUE (dag_id, run_id), FOREIGN KEY (created_dag_version_id) REFERENCES dag_version (id) ON DELETE SET NULL,
  FOREIGN KEY (backfill_id) REFERENCES backfill (id), FOREIGN KEY (log_template_id) REFERENCES log_template (id));
CREATE INDEX dag_run_created_dag_version_id ON dag_run (created_dag_version_id);
CREATE INDEX dag_run_backfill_id ON dag_run (backfill_id);
CREATE INDEX dag_run_log_template_id ON dag_run (log_template_id);
CREATE TABLE asset_partition_dag_run (id integer NOT NULL, created_dag_run_id integer, PRIMARY KEY (id),
  FOREIGN KEY (created_dag_run_id) REFERENCES dag_run (id) ON DELETE CASCADE);
CREATE INDEX asset_partition_dag_run_created_dag_run_id ON asset_partition_dag_run (created_dag_run_id);
CREATE TABLE asset_state_store (asset_id integer NOT NULL, "key" text NOT NULL, PRIMARY KEY (asset_id, "key"),
  FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE);
CREATE TABLE team (name text NOT NULL, PRIMARY KEY (name));
CREATE TABLE "trigger" (id integer NOT NULL, team_name text, PRIMARY KEY (id),
  FOREIGN KEY (team_name) REFERENCES team (name) ON DELETE SET NULL);
CREATE INDEX trigger_team_name ON "trigger" (team_name);
CREATE TABLE asset_watcher (asset_id integer NOT NULL, trigger_id integer NOT NULL,
  PRIMARY KEY (asset_id, trigger_id), FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE,
  FOREIGN KEY (trigger_id) REFERENCES "trigger" (id) ON DELETE CASCADE);
CREATE INDEX asset_watcher_trigger_id ON asset_watcher (trigger_id);
CREATE TABLE backfill_dag_run (id integer NOT NULL, backfill_id integer NOT NULL, dag_run_id integer,
  PRIMARY KEY (id), FOREIGN KEY (backfill_id) REFERENCES backfill (id) ON DELETE CASCADE,
  FOREIGN KEY (dag_run_id) REFERENCES dag_run (id) ON DELETE SET NULL);
CREATE INDEX backfill_dag_run_backfill_id ON backfill_dag_run (backfill_id);
CREATE INDEX backfill_dag_run_dag_run_id ON backfill_dag_run (dag_run_id);
CREATE TABLE callback (id text NOT NULL, state text, created_at <time> NOT NULL, trigger_id integer, PRIMARY KEY (id),
  FOREIGN KEY (trigger_id) REFERENCES "trigger" (id));
CREATE INDEX callback_trigger_id ON callback (trigger_id);
CREATE TABLE connection (id integer NOT NULL, team_name text, PRIMARY KEY (id),
  FOREIGN KEY (team_name) REFERENCES team (name) ON DELETE SET NULL);
CREATE INDEX connection_team_name ON connection (team_name);
CREATE TABLE connection_test_request (id text NOT NULL, state text NOT NULL, updated_at <time> NOT NULL,
  PRIMARY KEY (id));
CREATE TABLE dag_bundle_team (dag_bundle_name text NOT NULL, team_name text NOT NULL,
  PRIMARY KEY (dag_bundle_name, team_name),
  FOREIGN KEY (dag_bundle_name) REFERENCES dag_bundle (name) ON DELETE CASCADE,
  FOREIGN KEY (team_name) REFERENCES team (name) ON DELETE CASCADE);
CREATE INDEX dag_bundle_team_team_name ON dag_bundle_team (team_name);
CREATE TABLE dag_code (id text NOT NULL, dag_version_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (dag_version_id) REFERENCES dag_version (id) ON DELETE CASCADE);
CREATE INDEX dag_code_dag_version_id ON dag_code (dag_version_id);
CREATE TABLE dag_favorite (user_id text NOT NULL, dag_id text NOT NULL, PRIMARY KEY (user_id, dag_id),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_favorite_dag_id ON dag_favorite (dag_id);
CREATE TABLE dag_owner_attributes (dag_id text NOT NULL, owner text NOT NULL, PRIMARY KEY (dag_id, owner),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE TABLE dag_priority_parsing_request (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE dag_run_note (dag_run_id integer NOT NULL, PRIMARY KEY (dag_run_id),
  FOREIGN KEY (dag_run_id) REFERENCES dag_run (id) ON DELETE CASCADE);
CREATE TABLE dag_schedule_asset_alias_reference (alias_id integer NOT NULL, dag_id text NOT NULL,
  PRIMARY KEY (alias_id, dag_id), FOREIGN KEY (alias_id) REFERENCES asset_alias (id) ON DELETE CASCADE,
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_schedule_asset_alias_reference_dag_id ON dag_schedule_asset_alias_reference (dag_id);
CREATE TABLE dag_schedule_asset_name_reference (name text NOT NULL, dag_id text NOT NULL, PRIMARY KEY (name, dag_id),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_schedule_asset_name_reference_dag_id ON dag_schedule_asset_name_reference (dag_id);
CREATE TABLE dag_schedule_asset_reference (asset_id integer NOT NULL, dag_id text NOT NULL,
  PRIMARY KEY (asset_id, dag_id), FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE,
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_schedule_asset_reference_dag_id ON dag_schedule_asset_reference (dag_id);
CREATE TABLE dag_schedule_asset_uri_reference (uri text NOT NULL, dag_id text NOT NULL, PRIMARY KEY (uri, dag_id),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_schedule_asset_uri_reference_dag_id ON dag_schedule_asset_uri_reference (dag_id);
CREATE TABLE dag_tag (name text NOT NULL, dag_id text NOT NULL, PRIMARY KEY (name, dag_id),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX dag_tag_dag_id ON dag_tag (dag_id);
CREATE TABLE dag_warning (dag_id text NOT NULL, warning_type text NOT NULL, PRIMARY KEY (dag_id, warning_type),
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE TABLE dagrun_asset_event (dag_run_id integer NOT NULL, event_id integer NOT NULL,
  PRIMARY KEY (dag_run_id, event_id), FOREIGN KEY (dag_run_id) REFERENCES dag_run (id) ON DELETE CASCADE,
  FOREIGN KEY (event_id) REFERENCES asset_event (id) ON DELETE CASCADE);
CREATE INDEX dagrun_asset_event_event_id ON dagrun_asset_event (event_id);
CREATE TABLE serialized_dag (id text NOT NULL, dag_version_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (dag_version_id) REFERENCES dag_version (id) ON DELETE CASCADE);
CREATE INDEX serialized_dag_dag_version_id ON serialized_dag (dag_version_id);
CREATE TABLE deadline_alert (id text NOT NULL, serialized_dag_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (serialized_dag_id) REFERENCES serialized_dag (id) ON DELETE CASCADE);
CREATE INDEX deadline_alert_serialized_dag_id ON deadline_alert (serialized_dag_id);
CREATE TABLE deadline (id text NOT NULL, dagrun_id integer, deadline_time <time> NOT NULL, callback_id text NOT NULL,
  deadline_alert_id text, PRIMARY KEY (id), FOREIGN KEY (callback_id) REFERENCES callback (id) ON DELETE CASCADE,
  FOREIGN KEY (dagrun_id) REFERENCES dag_run (id) ON DELETE CASCADE,
  FOREIGN KEY (deadline_alert_id) REFERENCES deadline_alert (id) ON DELETE SET NULL);
CREATE INDEX deadline_callback_id ON deadline (callback_id);
CREATE INDEX deadline_dagrun_id ON deadline (dagrun_id);
CREATE INDEX deadline_deadline_alert_id ON deadline (deadline_alert_id);
CREATE TABLE task_instance (id text NOT NULL, task_id text NOT NULL, dag_id text NOT NULL, run_id text NOT NULL,
  map_index integer NOT NULL, trigger_id integer, dag_version_id text, PRIMARY KEY (id),
  UNIQUE (dag_id, task_id, run_id, map_index),
  FOREIGN KEY (dag_id, run_id) REFERENCES dag_run (dag_id, run_id) ON DELETE CASCADE,
  FOREIGN KEY (dag_version_id) REFERENCES dag_version (id) ON DELETE RESTRICT,
  FOREIGN KEY (trigger_id) REFERENCES "trigger" (id) ON DELETE CASCADE);
CREATE INDEX task_instance_dag_id_run_id ON task_instance (dag_id, run_id);
CREATE INDEX task_instance_dag_version_id ON task_instance (dag_version_id);
CREATE INDEX task_instance_trigger_id ON task_instance (trigger_id);
CREATE TABLE hitl_detail (ti_id text NOT NULL, PRIMARY KEY (ti_id),
  FOREIGN KEY (ti_id) REFERENCES task_instance (id) ON DELETE CASCADE);
CREATE TABLE task_instance_history (task_instance_id text NOT NULL, task_id text NOT NULL, dag_id text NOT NULL,
  run_id text NOT NULL, map_index integer NOT NULL, PRIMARY KEY (task_instance_id),
  FOREIGN KEY (dag_id, task_id, run_id, map_index) REFERENCES task_instance (dag_id, task_id, run_id, map_index) ON DELETE CASCADE);
CREATE INDEX task_instance_history_dag_id_task_id_run_id_map_index ON task_instance_history (dag_id, task_id, run_id, map_index);
CREATE TABLE hitl_detail_history (ti_history_id text NOT NULL, PRIMARY KEY (ti_history_id),
  FOREIGN KEY (ti_history_id) REFERENCES task_instance_history (task_instance_id) ON DELETE CASCADE);
CREATE TABLE import_error (id integer NOT NULL, "timestamp" <time>, PRIMARY KEY (id));
CREATE TABLE job (id integer NOT NULL, state text, latest_heartbeat <time>, PRIMARY KEY (id));
CREATE TABLE log (id integer NOT NULL, dttm <time>, PRIMARY KEY (id));
CREATE TABLE partitioned_asset_key_log (id integer NOT NULL, asset_partition_dag_run_id integer NOT NULL,
  created_at <time> NOT NULL, PRIMARY KEY (id));
CREATE TABLE rendered_task_instance_fields (dag_id text NOT NULL, task_id text NOT NULL, run_id text NOT NULL,
  map_index integer NOT NULL, PRIMARY KEY (dag_id, task_id, run_id, map_index),
  FOREIGN KEY (dag_id, task_id, run_id, map_index) REFERENCES task_instance (dag_id, task_id, run_id, map_index) ON DELETE CASCADE);
CREATE TABLE revoked_token (jti text NOT NULL, "exp" <time> NOT NULL, PRIMARY KEY (jti));
CREATE TABLE slot_pool (id integer NOT NULL, team_name text, PRIMARY KEY (id),
  FOREIGN KEY (team_name) REFERENCES team (name) ON DELETE SET NULL);
CREATE INDEX slot_pool_team_name ON slot_pool (team_name);
CREATE TABLE task_inlet_asset_reference (asset_id integer NOT NULL, dag_id text NOT NULL, task_id text NOT NULL,
  PRIMARY KEY (asset_id, dag_id, task_id), FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE,
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX task_inlet_asset_reference_dag_id ON task_inlet_asset_reference (dag_id);
CREATE TABLE task_instance_note (ti_id text NOT NULL, PRIMARY KEY (ti_id),
  FOREIGN KEY (ti_id) REFERENCES task_instance (id) ON DELETE CASCADE);
CREATE TABLE task_map (dag_id text NOT NULL, task_id text NOT NULL, run_id text NOT NULL, map_index integer NOT NULL,
  PRIMARY KEY (dag_id, task_id, run_id, map_index),
  FOREIGN KEY (dag_id, task_id, run_id, map_index) REFERENCES task_instance (dag_id, task_id, run_id, map_index) ON DELETE CASCADE);
CREATE TABLE task_outlet_asset_reference (asset_id integer NOT NULL, dag_id text NOT NULL, task_id text NOT NULL,
  PRIMARY KEY (asset_id, dag_id, task_id), FOREIGN KEY (asset_id) REFERENCES asset (id) ON DELETE CASCADE,
  FOREIGN KEY (dag_id) REFERENCES dag (dag_id) ON DELETE CASCADE);
CREATE INDEX task_outlet_asset_reference_dag_id ON task_outlet_asset_reference (dag_id);
CREATE TABLE task_reschedule (id integer NOT NULL, ti_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (ti_id) REFERENCES task_instance (id) ON DELETE CASCADE);
CREATE INDEX task_reschedule_ti_id ON task_reschedule (ti_id);
CREATE TABLE task_state_store (id integer NOT NULL, dag_run_id integer NOT NULL, value text NOT NULL,
  expires_at <time>, PRIMARY KEY (id), FOREIGN KEY (dag_run_id) REFERENCES dag_run (id) ON DELETE CASCADE);
CREATE INDEX task_state_store_dag_run_id ON task_state_store (dag_run_id);
CREATE TABLE variable (id integer NOT NULL, team_name text, PRIMARY KEY (id),
  FOREIGN KEY (team_name) REFERENCES team (name) ON DELETE SET NULL);
CREATE INDEX variable_team_name ON variable (team_name);
CREATE TABLE xcom (dag_run_id integer NOT NULL, task_id text NOT NULL, map_index integer NOT NULL,
  "key" text NOT NULL, dag_id text NOT NULL, run_id text NOT NULL,
  PRIMARY KEY (dag_run_id, task_id, map_index, "key"),
  FOREIGN KEY (dag_id, task_id, run_id, map_index) REFERENCES task_instance (dag_id, task_id, run_id, map_index) ON DELETE CASCADE);
CREATE INDEX xcom_dag_id_task_id_run_id_map_index ON xcom (dag_id, task_id, run_id, map_index);
