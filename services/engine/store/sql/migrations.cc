#include "services/engine/store/sql/migrations.h"

#include <array>

namespace lathe::engine {
namespace {

// Times are nanoseconds since the Unix epoch; 0 means never. Enums have the numbers of rows.h.
constexpr char kMigration1[] = R"sql(
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
)sql";

// The leader's row also holds its process and the number of its last commit. After a connection
// broke during a COMMIT, that number shows the outcome. Autovacuum starts early on the hot tables
// and does not throttle itself.
constexpr char kPostgresMigration1[] = R"sql(
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
)sql";

// AUTOINCREMENT never assigns a number twice, so a deleted entry leaves a visible gap.
constexpr char kMigration2[] = R"sql(
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, tenant_id TEXT NOT NULL,
  resource TEXT NOT NULL, event TEXT NOT NULL, actor TEXT NOT NULL, object TEXT NOT NULL,
  outcome TEXT NOT NULL, details TEXT NOT NULL);
CREATE INDEX audit_by_tenant ON audit (tenant_id, at);
)sql";

constexpr char kSqliteMigration2[] = R"sql(
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
)sql";

constexpr char kPostgresMigration2[] = R"sql(
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER audit_stays BEFORE DELETE OR UPDATE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
)sql";

// Numbers the copies of a sampling client.
constexpr char kMigration3[] =
    "ALTER TABLE samplers ADD COLUMN num_joined INTEGER NOT NULL DEFAULT 0";

constexpr char kMigration4[] = R"sql(
CREATE TABLE quotas (
  tenant_id TEXT PRIMARY KEY, requests_per_minute INTEGER NOT NULL,
  tokens_per_minute INTEGER NOT NULL, queued_bytes INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL, adapters INTEGER NOT NULL);
)sql";

// The second index serves the purge. Adding to an existing row changes neither index.
constexpr char kMigration5[] = R"sql(
CREATE TABLE usage (
  tenant_id TEXT NOT NULL, hour INTEGER NOT NULL, session_id TEXT NOT NULL,
  base_model TEXT NOT NULL, forward_tokens INTEGER NOT NULL,
  forward_backward_tokens INTEGER NOT NULL, prefill_tokens INTEGER NOT NULL,
  cached_prefill_tokens INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL,
  num_checkpoints INTEGER NOT NULL, stored_bytes INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, hour, session_id, base_model)) WITHOUT ROWID;
CREATE INDEX usage_by_hour ON usage (hour);
)sql";

// Lists the adapted modules. Before, the families of linear layers determined them.
constexpr char kMigration6[] = R"sql(
ALTER TABLE models ADD COLUMN target_modules TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN target_modules TEXT NOT NULL DEFAULT '';
UPDATE models SET target_modules = rtrim(
  CASE WHEN train_attn <> 0 THEN 'q_proj,k_proj,v_proj,o_proj,' ELSE '' END ||
  CASE WHEN train_mlp <> 0 THEN 'gate_proj,up_proj,down_proj,' ELSE '' END || CASE WHEN train_unembed <> 0 THEN 'lm_head' ELSE '' END, ',');
UPDATE checkpoints SET target_modules = rtrim(
  CASE WHEN train_attn <> 0 THEN 'q_proj,k_proj,v_proj,o_proj,' ELSE '' END ||
  CASE WHEN train_mlp <> 0 THEN 'gate_proj,up_proj,down_proj,' ELSE '' END || CASE WHEN train_unembed <> 0 THEN 'lm_head' ELSE '' END, ',');
)sql";

// The index is small: it holds only what no client has fetched yet.
constexpr char kMigration7[] = R"sql(
ALTER TABLE requests ADD COLUMN completion_number INTEGER NOT NULL DEFAULT 0;
CREATE INDEX requests_undelivered ON requests (completion_number)
  WHERE completion_number > 0 AND delivered_at = 0;
)sql";

// The log and the snapshots that rebuild a model whose worker is gone.
constexpr char kMigration8[] = R"sql(
ALTER TABLE models ADD COLUMN log_from_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
-- What ran before left no log: those models can be rebuilt once they have a snapshot.
UPDATE models SET log_from_seq = (SELECT coalesce(max(requests.seq_id), 0) FROM requests
  WHERE requests.owner_id = models.model_id AND requests.op_class = 1);
CREATE TABLE snapshots (
  snapshot_id TEXT PRIMARY KEY, model_id TEXT NOT NULL,
  applied_seq INTEGER NOT NULL, "window" TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL, term INTEGER NOT NULL, created_at INTEGER NOT NULL);
CREATE INDEX snapshots_by_model ON snapshots (model_id, created_at);
CREATE TABLE versions (
  version_id TEXT PRIMARY KEY, model_id TEXT NOT NULL, tenant_id TEXT NOT NULL,
  seq_id INTEGER NOT NULL, is_inflight INTEGER NOT NULL, dir TEXT NOT NULL,
  size_bytes INTEGER NOT NULL, manifest_sha256 TEXT NOT NULL);
)sql";

// State of models whose clients are gone.
constexpr char kMigration9[] = R"sql(
ALTER TABLE models ADD COLUMN dropped_window TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN is_parked INTEGER NOT NULL DEFAULT 0;
)sql";

// A table apart from the leader's row, which every commit locks. So a renewal never waits for a
// commit.
constexpr char kMigration10[] = R"sql(
CREATE TABLE lease (
  id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL, process TEXT NOT NULL,
  address TEXT NOT NULL, duration_ms INTEGER NOT NULL, num_renewals INTEGER NOT NULL);
INSERT INTO lease (id, term, process, address, duration_ms, num_renewals)
  SELECT 1, term, '', '', 0, 0 FROM leader;
)sql";
constexpr char kSqliteMigration10[] = R"sql(
ALTER TABLE leader ADD COLUMN last_commit INTEGER NOT NULL DEFAULT 0;
)sql";
constexpr char kPostgresMigration10[] = R"sql(
ALTER TABLE leader DROP COLUMN holder;
ALTER TABLE lease SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
)sql";

// Migration of models between groups on request.
constexpr char kMigration11[] = R"sql(
ALTER TABLE models ADD COLUMN move_to TEXT NOT NULL DEFAULT '';
ALTER TABLE groups ADD COLUMN is_draining INTEGER NOT NULL DEFAULT 0;
)sql";

// The flag of offloaded models.
constexpr char kMigration12[] = R"sql(
ALTER TABLE models RENAME COLUMN is_parked TO is_offloaded;
)sql";

// Lists the modules that LoRA may adapt, with the numbers of their families. All base models before
// are dense decoders, which have these eight. The next worker of a base model replaces the list.
constexpr char kMigration13[] = R"sql(
ALTER TABLE base_models ADD COLUMN lora_modules TEXT NOT NULL DEFAULT '';
UPDATE base_models SET lora_modules =
  'q_proj:0,k_proj:0,v_proj:0,o_proj:0,gate_proj:1,up_proj:1,down_proj:1,lm_head:2';
)sql";

// Indexes of the results by the times that end them. A flag in the request's row limits both
// indexes to requests whose result is kept. A request that replaces another one takes the result
// of that one away. Results of such requests were left behind before.
constexpr char kMigration14[] = R"sql(
ALTER TABLE requests ADD COLUMN has_result INTEGER NOT NULL DEFAULT 0;
DELETE FROM results WHERE NOT EXISTS (
  SELECT 1 FROM requests WHERE requests.request_id = results.request_id);
UPDATE requests SET has_result = 1 WHERE request_id IN (SELECT request_id FROM results);
)sql";
constexpr char kSqliteMigration14[] = R"sql(
CREATE INDEX results_by_done ON requests (done_at) WHERE has_result = 1;
CREATE INDEX results_by_delivered ON requests (delivered_at)
  WHERE has_result = 1 AND delivered_at > 0;
CREATE TRIGGER results_replaced AFTER UPDATE OF request_id ON requests
  WHEN old.request_id <> new.request_id
  BEGIN DELETE FROM results WHERE request_id = old.request_id; END;
)sql";
constexpr char kPostgresMigration14[] = R"sql(
CREATE INDEX results_by_done ON requests (done_at, rowid) WHERE has_result = 1;
CREATE INDEX results_by_delivered ON requests (delivered_at, rowid)
  WHERE has_result = 1 AND delivered_at > 0;
CREATE FUNCTION drop_replaced_result() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN DELETE FROM results WHERE request_id = OLD.request_id; RETURN NULL; END $$;
CREATE TRIGGER results_replaced AFTER UPDATE OF request_id ON requests FOR EACH ROW
  WHEN (OLD.request_id <> NEW.request_id) EXECUTE FUNCTION drop_replaced_result();
)sql";

// Indexes in the order of session searches, and of the newest checkpoints of a model.
constexpr char kMigration15[] = R"sql(
DROP INDEX sessions_by_tenant;
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, created_at, session_id);
CREATE INDEX sessions_by_project ON sessions (tenant_id, project_id, created_at, session_id)
  WHERE project_id <> '';
CREATE INDEX sessions_active ON sessions (tenant_id, created_at, session_id) WHERE state = 0;
CREATE INDEX checkpoints_newest ON checkpoints (model_id, kind, created_at) WHERE state = 1;
)sql";

// The oldest protocol whose engines can use the database. From here on, the rules for two releases
// on one database hold (schema.h).
constexpr char kMigration16[] = R"sql(
ALTER TABLE schema_version ADD COLUMN min_protocol INTEGER NOT NULL DEFAULT 0;
)sql";

// Limits of a tenant that have a default; -1 means the default. Sizes of the results: 0 without a
// result, -1 if the tenant's limit removed the result.
constexpr char kMigration17[] = R"sql(
ALTER TABLE quotas ADD COLUMN sessions INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN samplers INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN unfetched_results INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quotas ADD COLUMN unfetched_bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE requests ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;
)sql";

// The audit log loses entries only in a transaction that names them in this table, which is empty
// otherwise.
constexpr char kMigration18[] = R"sql(
CREATE TABLE audit_pruning (
  id INTEGER PRIMARY KEY CHECK (id = 1), after_id INTEGER NOT NULL, through_id INTEGER NOT NULL);
)sql";
constexpr char kSqliteMigration18[] = R"sql(
DROP TRIGGER audit_keeps;
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  WHEN NOT EXISTS (SELECT 1 FROM audit_pruning WHERE old.id > after_id AND old.id <= through_id)
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
)sql";
constexpr char kPostgresMigration18[] = R"sql(
CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN
    IF EXISTS (SELECT 1 FROM audit_pruning WHERE OLD.id > after_id AND OLD.id <= through_id) THEN
      RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
  END $$;
DROP TRIGGER audit_stays ON audit;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit
  FOR EACH ROW EXECUTE FUNCTION refuse_deletion();
)sql";

constexpr std::array<Migration, kSchemaVersion> kMigrations = {{
    {.common = kMigration1, .postgres = kPostgresMigration1},
    {.common = kMigration2, .sqlite = kSqliteMigration2, .postgres = kPostgresMigration2},
    {.common = kMigration3},
    {.common = kMigration4},
    {.common = kMigration5},
    {.common = kMigration6},
    {.common = kMigration7},
    {.common = kMigration8},
    {.common = kMigration9},
    {.common = kMigration10, .sqlite = kSqliteMigration10, .postgres = kPostgresMigration10},
    {.common = kMigration11},
    {.common = kMigration12},
    {.common = kMigration13},
    {.common = kMigration14, .sqlite = kSqliteMigration14, .postgres = kPostgresMigration14},
    {.common = kMigration15},
    {.common = kMigration16},
    {.common = kMigration17},
    {.common = kMigration18, .sqlite = kSqliteMigration18, .postgres = kPostgresMigration18},
}};

}  // namespace

std::span<const Migration> Migrations() { return kMigrations; }

}  // namespace lathe::engine
