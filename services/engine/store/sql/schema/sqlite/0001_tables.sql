-- kind: offline
-- Times are nanoseconds since the Unix epoch; 0 means never. Enums have the numbers of rows.h.
CREATE TABLE leader (id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL);
INSERT INTO leader (id, term) VALUES (1, 0);

CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);

CREATE TABLE tenants (
  tenant_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL);

CREATE TABLE api_keys (
  key_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, name TEXT NOT NULL,
  secret_sha256 TEXT NOT NULL, scopes TEXT NOT NULL, created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL);

CREATE TABLE base_models (
  name TEXT PRIMARY KEY, content_hash TEXT NOT NULL, arch TEXT NOT NULL,
  tokenizer_id TEXT NOT NULL, max_context_length INTEGER NOT NULL, vocab_size INTEGER NOT NULL,
  max_lora_rank INTEGER NOT NULL, token_budget INTEGER NOT NULL);

CREATE TABLE groups (
  group_name TEXT PRIMARY KEY, base_model TEXT NOT NULL, epoch INTEGER NOT NULL,
  process_id TEXT NOT NULL);

CREATE TABLE sessions (
  session_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, ordering INTEGER NOT NULL,
  state INTEGER NOT NULL, finish_reason TEXT NOT NULL, finish_detail TEXT NOT NULL,
  sdk_version TEXT NOT NULL, display_name TEXT NOT NULL, project_id TEXT NOT NULL,
  tags TEXT NOT NULL, user_metadata TEXT NOT NULL, created_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL);
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, created_at);

CREATE TABLE models (
  model_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, tenant_id TEXT NOT NULL,
  model_seq_id INTEGER NOT NULL, base_model TEXT NOT NULL, lora_rank INTEGER NOT NULL,
  lora_alpha REAL NOT NULL, lora_seed INTEGER NOT NULL, train_attn INTEGER NOT NULL,
  train_mlp INTEGER NOT NULL, train_unembed INTEGER NOT NULL, group_name TEXT NOT NULL,
  state INTEGER NOT NULL, state_reason TEXT NOT NULL, applied_seq INTEGER NOT NULL,
  closed_seq INTEGER NOT NULL, saved_seq INTEGER NOT NULL, gradient_from_seq INTEGER NOT NULL,
  kept_window TEXT NOT NULL, user_metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL, last_request_at INTEGER NOT NULL);
CREATE INDEX models_by_tenant ON models (tenant_id, created_at);
CREATE INDEX models_by_session ON models (session_id);

CREATE TABLE requests (
  request_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, owner_id TEXT NOT NULL,
  op_class INTEGER NOT NULL, seq_id INTEGER NOT NULL, kind INTEGER NOT NULL,
  state INTEGER NOT NULL, content_hash TEXT NOT NULL, body_id TEXT NOT NULL,
  body_bytes INTEGER NOT NULL, tokens INTEGER NOT NULL, plan BLOB NOT NULL,
  epoch INTEGER NOT NULL, accepted_at INTEGER NOT NULL, done_at INTEGER NOT NULL,
  delivered_at INTEGER NOT NULL,
  UNIQUE (owner_id, op_class, seq_id));
CREATE INDEX requests_live ON requests (state) WHERE state < 3;
CREATE INDEX requests_done ON requests (done_at) WHERE done_at > 0;

-- Bodies up to 64 KiB; larger ones are files.
CREATE TABLE payloads (body_id TEXT PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE results (request_id TEXT PRIMARY KEY, bytes BLOB NOT NULL);

CREATE TABLE checkpoints (
  tinker_path TEXT PRIMARY KEY, model_id TEXT NOT NULL, tenant_id TEXT NOT NULL,
  kind INTEGER NOT NULL, name TEXT NOT NULL, dir TEXT NOT NULL, state INTEGER NOT NULL,
  base_model TEXT NOT NULL, lora_rank INTEGER NOT NULL, lora_alpha REAL NOT NULL,
  lora_seed INTEGER NOT NULL, train_attn INTEGER NOT NULL, train_mlp INTEGER NOT NULL,
  train_unembed INTEGER NOT NULL, applied_seq INTEGER NOT NULL, size_bytes INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL, is_public INTEGER NOT NULL, user_metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL);
CREATE INDEX checkpoints_by_tenant ON checkpoints (tenant_id, created_at);
CREATE INDEX checkpoints_by_model ON checkpoints (model_id, created_at);

CREATE TABLE samplers (
  sampling_session_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, tenant_id TEXT NOT NULL,
  sampling_session_seq_id INTEGER NOT NULL, base_model TEXT NOT NULL, model_path TEXT NOT NULL,
  model_id TEXT NOT NULL, version_id TEXT NOT NULL, checkpoint_dir TEXT NOT NULL,
  version_bytes INTEGER NOT NULL, version_dropped INTEGER NOT NULL, created_at INTEGER NOT NULL);
CREATE INDEX samplers_by_session ON samplers (session_id);
