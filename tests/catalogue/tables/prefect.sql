CREATE TABLE work_pool (id text NOT NULL, default_queue_id text, PRIMARY KEY (id));
CREATE INDEX work_pool_default_queue_id ON work_pool (default_queue_id);
CREATE TABLE work_queue (id text NOT NULL, work_pool_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (work_pool_id) REFERENCES work_pool (id) ON DELETE CASCADE);
CREATE INDEX work_queue_work_pool_id ON work_queue (work_pool_id);
CREATE TABLE agent (id text NOT NULL, work_queue_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (work_queue_id) REFERENCES work_queue (id));
CREATE INDEX agent_work_queue_id ON agent (work_queue_id);
CREATE TABLE artifact (id text NOT NULL, created <time> NOT NULL, "key" text, flow_run_id text, PRIMARY KEY (id));
CREATE TABLE artifact_collection (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE automation (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE automation_bucket (automation_id text NOT NULL, id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (automation_id) REFERENCES automation (id) ON DELETE CASCADE);
CREATE INDEX automation_bucket_automation_id ON automation_bucket (automation_id);
CREATE TABLE automation_event_follower (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE automation_related_resource (automation_id text NOT NULL, id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (automation_id) REFERENCES automation (id) ON DELETE CASCADE);
CREATE INDEX automation_related_resource_automation_id ON automation_related_resource (automation_id);
CREATE TABLE block_type (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE block_schema (id text NOT NULL, block_type_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (block_type_id) REFERENCES block_type (id) ON DELETE CASCADE);
CREATE INDEX block_schema_block_type_id ON block_schema (block_type_id);
CREATE TABLE block_document (id text NOT NULL, block_schema_id text NOT NULL, block_type_id text NOT NULL,
  PRIMARY KEY (id), FOREIGN KEY (block_schema_id) REFERENCES block_schema (id) ON DELETE CASCADE,
  FOREIGN KEY (block_type_id) REFERENCES block_type (id) ON DELETE CASCADE);
CREATE INDEX block_document_block_schema_id ON block_document (block_schema_id);
CREATE INDEX block_document_block_type_id ON block_document (block_type_id);
CREATE TABLE block_document_reference (id text NOT NULL, parent_block_document_id text NOT NULL,
  reference_block_document_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (parent_block_document_id) REFERENCES block_document (id) ON DELETE CASCADE,
  FOREIGN KEY (reference_block_document_id) REFERENCES block_document (id) ON DELETE CASCADE);
CREATE INDEX block_document_reference_parent_block_document_id ON block_document_reference (parent_block_document_id);
CREATE INDEX block_document_reference_reference_block_document_id ON block_document_reference (reference_block_document_id);
CREATE TABLE block_schema_reference (id text NOT NULL, parent_block_schema_id text NOT NULL,
  reference_block_schema_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (parent_block_schema_id) REFERENCES block_schema (id) ON DELETE CASCADE,
  FOREIGN KEY (reference_block_schema_id) REFERENCES block_schema (id) ON DELETE CASCADE);
CREATE INDEX block_schema_reference_parent_block_schema_id ON block_schema_reference (parent_block_schema_id);
CREATE INDEX block_schema_reference_reference_block_schema_id ON block_schema_reference (reference_block_schema_id);
CREATE TABLE composite_trigger_child_firing (automation_id text NOT NULL, id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (automation_id) REFERENCES automation (id) ON DELETE CASCADE);
CREATE INDEX composite_trigger_child_firing_automation_id ON composite_trigger_child_firing (automation_id);
CREATE TABLE concurrency_limit (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE concurrency_limit_v2 (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE configuration (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE csrf_token (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE flow (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE deployment (id text NOT NULL, flow_id text NOT NULL, infrastructure_document_id text,
  storage_document_id text, work_queue_id text, concurrency_limit_id text, PRIMARY KEY (id),
  FOREIGN KEY (concurrency_limit_id) REFERENCES concurrency_limit_v2 (id) ON DELETE SET NULL,
  FOREIGN KEY (flow_id) REFERENCES flow (id) ON DELETE CASCADE,
  FOREIGN KEY (infrastructure_document_id) REFERENCES block_document (id) ON DELETE CASCADE,
  FOREIGN KEY (storage_document_id) REFERENCES block_document (id) ON DELETE CASCADE,
  FOREIGN KEY (work_queue_id) REFERENCES work_queue (id) ON DELETE SET NULL);
CREATE INDEX deployment_concurrency_limit_id ON deployment (concurrency_limit_id);
CREATE INDEX deployment_flow_id ON deployment (flow_id);
CREATE INDEX deployment_infrastructure_document_id ON deployment (infrastructure_document_id);
CREATE INDEX deployment_storage_document_id ON deployment (storage_document_id);
CREATE INDEX deployment_work_queue_id ON deployment (work_queue_id);
CREATE TABLE deployment_schedule (id text NOT NULL, deployment_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (deployment_id) REFERENCES deployment (id) ON DELETE CASCADE);
CREATE INDEX deployment_schedule_deployment_id ON deployment_schedule (deployment_id);
CREATE TABLE deployment_version (deployment_id text NOT NULL, work_queue_id text, id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (deployment_id) REFERENCES deployment (id) ON DELETE CASCADE,
  FOREIGN KEY (work_queue_id) REFERENCES work_queue (id) ON DELETE SET NULL);
CREATE INDEX deployment_version_deployment_id ON deployment_version (deployment_id);
CREATE INDEX deployment_version_work_queue_id ON deployment_version (work_queue_id);
CREATE TABLE event_resources (occurred <time> NOT NULL, resource text NOT NULL, event_id text NOT NULL,
  id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE events (occurred <time> NOT NULL, event text NOT NULL, resource_id text NOT NULL, id text NOT NULL,
  PRIMARY KEY (id));
CREATE TABLE task_run (id text NOT NULL, state_type text, flow_run_id text, PRIMARY KEY (id));
CREATE INDEX task_run_flow_run_id ON task_run (flow_run_id);
CREATE TABLE flow_run_state (id text NOT NULL, type text NOT NULL, flow_run_id text NOT NULL, result_artifact_id text,
  PRIMARY KEY (id), FOREIGN KEY (result_artifact_id) REFERENCES artifact (id) ON DELETE SET NULL);
CREATE INDEX flow_run_state_flow_run_id ON flow_run_state (flow_run_id);
CREATE INDEX flow_run_state_result_artifact_id ON flow_run_state (result_artifact_id);
CREATE TABLE flow_run (id text NOT NULL, state_type text, end_time <time>, flow_id text NOT NULL,
  parent_task_run_id text, state_id text, infrastructure_document_id text, work_queue_id text, PRIMARY KEY (id),
  FOREIGN KEY (flow_id) REFERENCES flow (id) ON DELETE CASCADE,
  FOREIGN KEY (infrastructure_document_id) REFERENCES block_document (id) ON DELETE CASCADE,
  FOREIGN KEY (parent_task_run_id) REFERENCES task_run (id) ON DELETE SET NULL,
  FOREIGN KEY (state_id) REFERENCES flow_run_state (id) ON DELETE SET NULL,
  FOREIGN KEY (work_queue_id) REFERENCES work_queue (id) ON DELETE SET NULL);
CREATE INDEX flow_run_flow_id ON flow_run (flow_id);
CREATE INDEX flow_run_infrastructure_document_id ON flow_run (infrastructure_document_id);
CREATE INDEX flow_run_parent_task_run_id ON flow_run (parent_task_run_id);
CREATE INDEX flow_run_state_id ON flow_run (state_id);
CREATE INDEX flow_run_work_queue_id ON flow_run (work_queue_id);
CREATE TABLE flow_run_input (id text NOT NULL, flow_run_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (flow_run_id) REFERENCES flow_run (id) ON DELETE CASCADE);
CREATE INDEX flow_run_input_flow_run_id ON flow_run_input (flow_run_id);
CREATE TABLE log (id text NOT NULL, level integer NOT NULL, flow_run_id text, task_run_id text,
  "timestamp" <time> NOT NULL, PRIMARY KEY (id));
CREATE TABLE saved_search (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE task_run_state (id text NOT NULL, task_run_id text NOT NULL, result_artifact_id text, PRIMARY KEY (id),
  FOREIGN KEY (result_artifact_id) REFERENCES artifact (id) ON DELETE SET NULL,
  FOREIGN KEY (task_run_id) REFERENCES task_run (id) ON DELETE CASCADE);
CREATE INDEX task_run_state_result_artifact_id ON task_run_state (result_artifact_id);
CREATE INDEX task_run_state_task_run_id ON task_run_state (task_run_id);
CREATE TABLE task_run_state_cache (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE variable (id text NOT NULL, PRIMARY KEY (id));
CREATE TABLE worker (id text NOT NULL, work_pool_id text NOT NULL, PRIMARY KEY (id),
  FOREIGN KEY (work_pool_id) REFERENCES work_pool (id) ON DELETE CASCADE);
CREATE INDEX worker_work_pool_id ON worker (work_pool_id);
