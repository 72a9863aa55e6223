-- kind: offline
-- Times are nanoseconds since the Unix epoch; 0 means never. Enums have the numbers of rows.h.
CREATE TABLE leader (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  id BIGINT PRIMARY KEY CHECK (id = 1), term BIGINT NOT NULL);
INSERT INTO leader (id, term) VALUES (1, 0);

CREATE TABLE secrets (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  name TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL);

CREATE TABLE tenants (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  tenant_id TEXT COLLATE "C" PRIMARY KEY, name TEXT COLLATE "C" NOT NULL UNIQUE,
  created_at BIGINT NOT NULL);

CREATE TABLE api_keys (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  key_id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL, secret_sha256 TEXT COLLATE "C" NOT NULL,
  scopes TEXT COLLATE "C" NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
  revoked_at BIGINT NOT NULL);

CREATE TABLE base_models (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  name TEXT COLLATE "C" PRIMARY KEY, content_hash TEXT COLLATE "C" NOT NULL,
  arch TEXT COLLATE "C" NOT NULL, tokenizer_id TEXT COLLATE "C" NOT NULL,
  max_context_length BIGINT NOT NULL, vocab_size BIGINT NOT NULL, max_lora_rank BIGINT NOT NULL,
  token_budget BIGINT NOT NULL);

CREATE TABLE groups (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  group_name TEXT COLLATE "C" PRIMARY KEY, base_model TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL, process_id TEXT COLLATE "C" NOT NULL);

CREATE TABLE sessions (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  session_id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL,
  ordering BIGINT NOT NULL, state BIGINT NOT NULL, finish_reason TEXT COLLATE "C" NOT NULL,
  finish_detail TEXT COLLATE "C" NOT NULL, sdk_version TEXT COLLATE "C" NOT NULL,
  display_name TEXT COLLATE "C" NOT NULL, project_id TEXT COLLATE "C" NOT NULL,
  tags TEXT COLLATE "C" NOT NULL, user_metadata TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL, heartbeat_at BIGINT NOT NULL);
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, created_at);

CREATE TABLE models (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  model_id TEXT COLLATE "C" PRIMARY KEY, session_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, model_seq_id BIGINT NOT NULL,
  base_model TEXT COLLATE "C" NOT NULL, lora_rank BIGINT NOT NULL,
  lora_alpha DOUBLE PRECISION NOT NULL, lora_seed BIGINT NOT NULL, train_attn BIGINT NOT NULL,
  train_mlp BIGINT NOT NULL, train_unembed BIGINT NOT NULL, group_name TEXT COLLATE "C" NOT NULL,
  state BIGINT NOT NULL, state_reason TEXT COLLATE "C" NOT NULL, applied_seq BIGINT NOT NULL,
  closed_seq BIGINT NOT NULL, saved_seq BIGINT NOT NULL, gradient_from_seq BIGINT NOT NULL,
  kept_window TEXT COLLATE "C" NOT NULL, user_metadata TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL, last_request_at BIGINT NOT NULL);
CREATE INDEX models_by_tenant ON models (tenant_id, created_at);
CREATE INDEX models_by_session ON models (session_id);

CREATE TABLE requests (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  request_id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL,
  owner_id TEXT COLLATE "C" NOT NULL, op_class BIGINT NOT NULL, seq_id BIGINT NOT NULL,
  kind BIGINT NOT NULL, state BIGINT NOT NULL, content_hash TEXT COLLATE "C" NOT NULL,
  body_id TEXT COLLATE "C" NOT NULL, body_bytes BIGINT NOT NULL, tokens BIGINT NOT NULL,
  plan BYTEA NOT NULL, epoch BIGINT NOT NULL, accepted_at BIGINT NOT NULL, done_at BIGINT NOT NULL,
  delivered_at BIGINT NOT NULL, UNIQUE (owner_id, op_class, seq_id));
CREATE INDEX requests_live ON requests (state) WHERE state < 3;
CREATE INDEX requests_done ON requests (done_at) WHERE done_at > 0;

-- Request bodies of any size.
CREATE TABLE payloads (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  body_id TEXT COLLATE "C" PRIMARY KEY, bytes BYTEA NOT NULL);
CREATE TABLE results (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  request_id TEXT COLLATE "C" PRIMARY KEY, bytes BYTEA NOT NULL);

CREATE TABLE checkpoints (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  tinker_path TEXT COLLATE "C" PRIMARY KEY, model_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, kind BIGINT NOT NULL, name TEXT COLLATE "C" NOT NULL,
  dir TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, base_model TEXT COLLATE "C" NOT NULL,
  lora_rank BIGINT NOT NULL, lora_alpha DOUBLE PRECISION NOT NULL, lora_seed BIGINT NOT NULL,
  train_attn BIGINT NOT NULL, train_mlp BIGINT NOT NULL, train_unembed BIGINT NOT NULL,
  applied_seq BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
  manifest_sha256 TEXT COLLATE "C" NOT NULL, is_public BIGINT NOT NULL,
  user_metadata TEXT COLLATE "C" NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX checkpoints_by_tenant ON checkpoints (tenant_id, created_at);
CREATE INDEX checkpoints_by_model ON checkpoints (model_id, created_at);

CREATE TABLE samplers (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY,
  sampling_session_id TEXT COLLATE "C" PRIMARY KEY, session_id TEXT COLLATE "C" NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL, sampling_session_seq_id BIGINT NOT NULL,
  base_model TEXT COLLATE "C" NOT NULL, model_path TEXT COLLATE "C" NOT NULL,
  model_id TEXT COLLATE "C" NOT NULL, version_id TEXT COLLATE "C" NOT NULL,
  checkpoint_dir TEXT COLLATE "C" NOT NULL, version_bytes BIGINT NOT NULL,
  version_dropped BIGINT NOT NULL, created_at BIGINT NOT NULL);
CREATE INDEX samplers_by_session ON samplers (session_id);

-- The leader's row also holds its process and the number of its last commit. After a connection
-- broke during a COMMIT, that number shows the outcome. Autovacuum starts early on the hot tables
-- and does not throttle itself.
ALTER TABLE leader ADD COLUMN holder TEXT NOT NULL DEFAULT '',
  ADD COLUMN last_commit BIGINT NOT NULL DEFAULT 0;
ALTER TABLE leader SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE requests SET (fillfactor = 70, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE payloads SET (autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE results SET (autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE payloads ALTER COLUMN bytes SET STORAGE EXTERNAL;
ALTER TABLE results ALTER COLUMN bytes SET STORAGE EXTERNAL;
