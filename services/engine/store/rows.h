// Rows of the store as plain structs: the core writes them, and a new leader reads them back. No
// SQL and no protobuf here. Times are nanoseconds since the Unix epoch; 0 means "never".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libs/common/lora/lora_modules.h"
#include "services/engine/store/operation_kind.h"

namespace lathe::engine {

using Metadata = std::vector<std::pair<std::string, std::string>>;  // sorted by name

enum class SessionOrdering { kSerial, kConcurrent };
// kFinished: takes no new work, but queued work still completes. kEnded: all it held is freed.
enum class SessionState { kActive, kFinished, kEnded };

struct SessionRow {
  std::string session_id;
  std::string tenant_id;
  SessionOrdering ordering = SessionOrdering::kConcurrent;
  SessionState state = SessionState::kActive;
  std::string finish_reason;  // success, errored, interrupted, expired
  std::string finish_detail;
  std::string sdk_version;
  std::string display_name;
  std::string project_id;
  std::string tags;  // comma-separated
  Metadata user_metadata;
  int64_t created_at = 0;
  int64_t heartbeat_at = 0;
};

struct LoraConfig {
  int64_t rank = 32;
  double alpha = 32.0;
  uint64_t seed = 0;
  // Families of linear layers to adapt, as the caller requested them.
  bool train_attn = true;
  bool train_mlp = true;
  bool train_unembed = true;
  // Names of the adapted modules, in the order of the base model's; at least one.
  std::vector<std::string> target_modules = LoraModuleNames(DenseLoraModules());
};

// kLost: the state was lost with its worker; the checkpoints are intact.
enum class ModelState { kCreating, kReady, kFailed, kLost, kUnloaded };

// A model is a training run; its row outlives the session.
struct ModelRow {
  std::string model_id;
  std::string session_id;
  std::string tenant_id;
  int64_t model_seq_id = 0;
  std::string base_model;
  LoraConfig lora;
  std::string group;
  ModelState state = ModelState::kCreating;
  std::string state_reason;
  int64_t applied_seq = 0;        // seq of the last done operation that changed the weights
  int64_t closed_seq = 0;         // every missing seq up to here is abandoned
  int64_t saved_seq = 0;          // applied_seq of the newest training checkpoint
  int64_t gradient_from_seq = 0;  // gradients of seqs up to here are stepped or cleared
  std::string kept_window;  // comma-separated: seqs of the open gradient without a request row
  // Comma-separated seqs of a gradient that was dropped because its client was gone. The next
  // optim_step is refused for that reason.
  std::string dropped_window;
  // Rows and bodies of operations with a higher seq are kept. Together with the oldest snapshot
  // they rebuild the model.
  int64_t log_from_seq = 0;
  bool is_offloaded = false;  // its state is only on disk until a request needs it
  std::string move_to;        // group that the model migrates to; empty: no migration
  Metadata user_metadata;
  int64_t created_at = 0;
  int64_t last_request_at = 0;
};

enum class RequestState { kAccepted = 1, kDispatched, kDone, kFailed };

// Number of a sample in the order in which samples end. Numbers grow, also from one leader to the
// next. Clients use them as cursors: they stay below 2^53 for two million terms.
constexpr int64_t CompletionNumber(int64_t term, int64_t count) { return (term << 32) + count; }

// The beginning of RequestRow::outcome of a failed load_weights.
inline constexpr char kFailedOutcome[] = "failed: ";

struct RequestRow {
  std::string request_id;
  std::string tenant_id;
  std::string owner_id;
  OpClass op_class = OpClass::kTrain;
  int64_t seq_id = 0;
  OperationKind kind = OperationKind::kForwardBackward;
  RequestState state = RequestState::kAccepted;
  std::string content_hash;
  std::string body_id;  // empty: no body
  int64_t body_bytes = 0;
  int64_t tokens = 0;  // charged to the tenant
  std::string plan;    // fixed at accept (seeds, dirs, version ids…): a lathe.v1.Plan
  int64_t epoch = 0;   // epoch of the group when the request was dispatched
  int64_t accepted_at = 0;
  int64_t done_at = 0;
  int64_t delivered_at = 0;
  // Facts that are needed to run the operation again. For a done optim_step: the comma-separated
  // seqs that it applied and the applied_seq before it. For a done load_weights or named save: the
  // directory. For a failed load_weights: kFailedOutcome and its error message.
  std::string outcome;
  // Encoded size of the result; 0: there is none, or its size is unknown; -1: the tenant's limit of
  // unfetched results removed it.
  int64_t result_bytes = 0;
};

// A model's state on disk: weights, moments, accumulator. Each model keeps its two newest
// snapshots.
struct SnapshotRow {
  std::string snapshot_id;  // also the name of its directory below DATA_DIR/checkpoints
  std::string model_id;
  int64_t applied_seq = 0;
  std::string window;  // comma-separated seqs of the accumulator
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  int64_t term = 0;  // term of the leader that requested the snapshot
  int64_t created_at = 0;
};

// An unnamed sampler version that is on disk.
struct VersionRow {
  std::string version_id;
  std::string model_id;
  std::string tenant_id;
  int64_t seq_id = 0;  // seq of the publication that made its weights
  bool is_inflight = false;
  std::string dir;  // below DATA_DIR/checkpoints
  int64_t size_bytes = 0;
  std::string manifest_sha256;
};

// kExternal: files for download; they are never loaded or sampled from.
enum class CheckpointKind { kTraining = 1, kSampler, kExternal };
enum class CheckpointState { kComplete = 1, kDeleted };

struct CheckpointRow {
  // tinker://{model_id}/{weights|sampler_weights|external_weights}/{name}
  std::string tinker_path;
  std::string model_id;
  std::string tenant_id;
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string name;
  std::string dir;  // below DATA_DIR/checkpoints, chosen by the engine
  CheckpointState state = CheckpointState::kComplete;
  std::string base_model;
  LoraConfig lora;
  int64_t applied_seq = 0;
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  bool is_public = false;
  Metadata user_metadata;
  int64_t created_at = 0;
  int64_t expires_at = 0;
};

// One sampling session. Its weights come from version_id (in the worker's memory), from
// checkpoint_dir, or from the base model if both are empty.
struct SamplerRow {
  std::string sampling_session_id;
  std::string session_id;
  std::string tenant_id;
  int64_t sampling_session_seq_id = 0;
  std::string base_model;
  std::string model_path;        // tinker://… path as requested
  std::string model_id;          // model that the version belongs to
  std::string version_id;        // empty: the base model
  std::string checkpoint_dir;    // directory that LoadVersion reads; empty: only in memory
  int64_t version_bytes = 0;     // memory of an unnamed version
  bool version_dropped = false;  // true if the tenant's sampler_versions_bytes evicted it
  int64_t created_at = 0;
  int64_t num_joined = 0;  // number of copies of the sampling client that got a number
};

// A sample that has ended and whose result no client has fetched yet.
struct CompletionRow {
  int64_t completion_number = 0;
  std::string request_id;
  std::string tenant_id;
  std::string sampling_session_id;
  int64_t seq_id = 0;
  RequestState state = RequestState::kDone;
  int64_t done_at = 0;
  int64_t result_bytes = 0;  // encoded
};

// Description of a base model as a worker reported it. It lets the engine validate requests before
// a worker is back.
struct BaseModelRow {
  std::string name;
  std::string content_hash;
  std::string arch;
  std::string tokenizer_id;
  int64_t max_context_length = 0;
  int64_t vocab_size = 0;
  int64_t max_lora_rank = 512;
  int64_t token_budget = 0;
  std::vector<LoraModule> lora_modules;  // modules that LoRA may adapt, in the order of adapters
};

struct GroupRow {
  std::string group;
  std::string base_model;
  int64_t epoch = 0;
  std::string process_id;    // process id of the worker that formed the group
  bool is_draining = false;  // true if other groups are to take its models and samples
};

// A limit that the options of the engine decide.
inline constexpr int64_t kDefaultLimit = -1;

// Limits of a tenant; 0 means no limit.
struct QuotaRow {
  std::string tenant_id;
  int64_t requests_per_minute = 0;            // requests that become futures
  int64_t tokens_per_minute = 0;              // tokens of those requests, as sent
  int64_t queued_bytes = 0;                   // total size of the bodies of unfinished requests
  int64_t stored_bytes = 0;                   // total size of the checkpoints
  int64_t adapters = 0;                       // number of live models
  int64_t sessions = kDefaultLimit;           // number of sessions that have not ended
  int64_t samplers = kDefaultLimit;           // number of live samplers
  int64_t unfetched_results = kDefaultLimit;  // number of finished results that nobody fetched
  int64_t unfetched_bytes = kDefaultLimit;    // total size of these results
};

// One entry of the audit log: the actor, the action, the object and the outcome. Entries never
// change.
struct AuditRow {
  int64_t at = 0;
  std::string tenant_id;  // tenant of the key or the object
  std::string resource;   // part of the log: checkpoints, organizations or projects
  std::string event;      // {resource}_{action}: key_create, checkpoint_publish…
  std::string actor;      // key id; empty: a person at this machine; "engine": the engine itself
  std::string object;     // key id, tinker path, tenant's name…
  std::string outcome;    // "ok", or the stable word of the error
  Metadata details;
};

// Usage of one session in one hour on one base model. Fields are counters, in tokens unless stated
// otherwise.
struct UsageRow {
  std::string tenant_id;
  int64_t hour = 0;        // start of the hour
  std::string session_id;  // empty: the row holds storage
  std::string base_model;
  int64_t forward_tokens = 0;
  int64_t forward_backward_tokens = 0;
  int64_t prefill_tokens = 0;
  int64_t cached_prefill_tokens = 0;
  int64_t sampled_tokens = 0;
  int64_t num_checkpoints = 0;
  int64_t stored_bytes = 0;  // a level, not a counter
};

// ---- Writes. All writes of one Commit become durable together, in order. ----

struct PutSession {
  SessionRow row;
};
struct TouchSession {
  std::string session_id;
  int64_t heartbeat_at = 0;
};
struct PutModel {
  ModelRow row;
};
// Inserts a request. It replaces a finished row of the same (owner_id, op_class, seq_id): retention
// has removed that row's result, and the core holds the row no longer.
struct InsertRequest {
  RequestRow row;
};
struct MarkDispatched {
  std::string request_id;
  int64_t epoch = 0;
  std::string outcome = "";  // for a load_weights: the directory it was sent with
};
// `result_id` names the encoded OperationResult, which the runtime holds until the commit.
struct CompleteRequest {
  std::string request_id;
  RequestState state = RequestState::kDone;
  std::string result_id;
  int64_t done_at = 0;
  int64_t completion_number = 0;  // nonzero for a sample, see CompletionNumber
  std::string outcome;            // see RequestRow
  int64_t result_bytes = 0;       // see RequestRow
};
// Removes a result that no client has fetched. The row answers "expired".
struct DropResult {
  std::string request_id;
};
struct MarkDelivered {
  std::string request_id;
  int64_t delivered_at = 0;
};
struct PutCheckpoint {
  CheckpointRow row;
};
struct PutSampler {
  SamplerRow row;
};
struct DeleteSampler {
  std::string sampling_session_id;
};
struct PutBaseModel {
  BaseModelRow row;
};
struct PutGroup {
  GroupRow row;
};
struct PutSnapshot {
  SnapshotRow row;
};
struct DeleteSnapshot {
  std::string snapshot_id;
};
struct PutVersion {
  VersionRow row;
};
struct DeleteVersion {
  std::string version_id;
};
// Drops the body of a finished request.
struct DropBody {
  std::string body_id;
};
// Asks for a purge. The commit deletes nothing; the runtime deletes in pieces after it, see
// Store::PurgePiece. The purge deletes results that were delivered before `delivered_before` or
// done before `done_before`. Also deletes the rows of requests done before `rows_before`, and the
// usage of hours before `usage_before`. A row without a result answers "expired". Two kinds of rows
// stay: those above the log_from_seq of a live model, and those that created models of a session
// that has not ended.
struct PurgeResults {
  int64_t delivered_before = 0;
  int64_t done_before = 0;
  int64_t rows_before = 0;
  int64_t usage_before = 0;
};
struct AppendAudit {
  AuditRow row;
};
struct PutQuota {
  QuotaRow row;
};
// Assigns a project to a session, which may have ended.
struct SetSessionProject {
  std::string tenant_id;
  std::string session_id;
  std::string project_id;
};
// Adds to the counters of the row with the same tenant, hour, session and base model. For levels,
// the higher value stays.
struct AddUsage {
  UsageRow row;
};

// Appends a batch of metrics' points to the journal. The runtime adds it to a commit; the core
// knows nothing of it.
struct AppendPoints {
  int64_t journal_id = 0;
  std::string bytes;
};

using Write =
    std::variant<PutSession, TouchSession, PutModel, InsertRequest, MarkDispatched, CompleteRequest,
                 MarkDelivered, PutCheckpoint, PutSampler, DeleteSampler, PutBaseModel, PutGroup,
                 DropBody, PurgeResults, AppendAudit, PutQuota, SetSessionProject, AddUsage,
                 PutSnapshot, DeleteSnapshot, PutVersion, DeleteVersion, DropResult, AppendPoints>;

// Everything a new leader needs:
//   - sessions that have not ended, or ended within a day (heartbeat_at),
//   - models and samplers of sessions that have not ended,
//   - live requests, and finished ones whose result is still kept or was never fetched,
//   - refused requests, which never have a result, for a day,
//   - requests above the log_from_seq of such models,
//   - complete checkpoints,
//   - snapshots and versions of such models,
//   - base models, groups and quotas.
struct StoredState {
  int64_t term = 0;
  std::vector<SessionRow> sessions;
  std::vector<ModelRow> models;
  std::vector<RequestRow> requests;
  std::vector<CheckpointRow> checkpoints;
  std::vector<SamplerRow> samplers;
  std::vector<SnapshotRow> snapshots;  // oldest first within a model
  std::vector<VersionRow> versions;
  std::vector<BaseModelRow> base_models;
  std::vector<GroupRow> groups;
  std::vector<QuotaRow> quotas;
};

}  // namespace lathe::engine
