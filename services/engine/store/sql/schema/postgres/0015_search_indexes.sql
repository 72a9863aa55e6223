-- kind: offline
-- Indexes in the order of session searches, and of the newest checkpoints of a model.
DROP INDEX sessions_by_tenant;
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, created_at, session_id);
CREATE INDEX sessions_by_project ON sessions (tenant_id, project_id, created_at, session_id)
  WHERE project_id <> '';
CREATE INDEX sessions_active ON sessions (tenant_id, created_at, session_id) WHERE state = 0;
CREATE INDEX checkpoints_newest ON checkpoints (model_id, kind, created_at) WHERE state = 1;
