// Inputs of the core. Events carry everything that the core may use: time, randomness (a seed in
// Loaded) and sizes. Bodies and results stay outside and are named by id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A call that waits for an answer. rpc/ chooses the id and Answer repeats it. 0: no call waits.
using CallId = uint64_t;

struct ErrorInfo {
  absl::StatusCode status = absl::StatusCode::kOk;
  std::string code;  // stable identifier
  std::string field;
  std::string message;
  int64_t retry_after_seconds = 0;  // earliest useful retry; 0: unknown
};

struct PayloadRef {
  std::string body_id;  // empty: no body
  int64_t bytes = 0;
  int64_t tokens = 0;
  // True if the body was not stored, because the tenant's limits had no room for it. The core
  // answers a repetition and refuses anything new.
  bool is_withheld = false;
};

// First event: the state that a new leader reads from the store.
struct Loaded {
  StoredState state;
  uint64_t random_seed = 0;
};

// Sent about every second.
struct Tick {};

// Answers a ContinueLater: the core does the next piece of the work that it put off.
struct Continue {};

// Every Commit up to and including this one is durable.
struct Committed {
  uint64_t commit_id = 0;
};

// ---- callers

struct CreateSession {
  CallId call = 0;
  SessionRow row;  // tenant, ordering, metadata…; the core sets id and times
};

struct Heartbeat {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
};

struct FinishSession {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
  std::string reason;
  std::string detail;
};

struct CreateModelArgs {
  std::string base_model;
  LoraConfig lora;
  bool has_seed = false;
  Metadata user_metadata;
};

// The body has the rest.
struct TrainArgs {
  // Bytes of the request, also of an invalid one, which has no body. At least kSplitBatchBytes if
  // it has as many datums as clients send in one request.
  int64_t batch_bytes = 0;
};

struct OptimStepArgs {
  std::string adam_params;  // a serialized lathe.v1.AdamParams; the core only passes it on
};

struct SaveArgs {
  std::string name;                      // empty: unnamed sampler version
  int64_t sampling_session_seq_id = -1;  // for the unnamed form
  // For the unnamed form: all inflight samplers of the model switch to the new weights.
  bool inflight = false;
  int64_t ttl_seconds = 0;  // 0: never expires
  bool overwrite = false;
  Metadata user_metadata;
  std::vector<std::string> age_recipients;  // kSaveWeightsExternal; empty: not encrypted
};

struct LoadArgs {
  std::string path;
  bool with_optimizer = false;
  // True: the load creates its model. The owner is then the session, and the seq its model_seq_id.
  bool creates_model = false;
  std::string base_model;
  Metadata user_metadata;
  // Adapter shape given in user_metadata, which the checkpoint must have; names in any order. Unset
  // or empty: any.
  std::optional<double> lora_alpha;
  std::vector<std::string> target_modules;
  // Tenant of the weights access token, which may own the checkpoint. Empty: no token was given.
  std::string reader_tenant_id;
};

struct SampleArgs {
  int64_t num_samples = 1;
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // 0: unset, up to the end of the context
  bool has_seed = false;
  uint64_t seed = 0;
};

struct UnloadArgs {};

using OperationArgs = std::variant<CreateModelArgs, TrainArgs, OptimStepArgs, SaveArgs, LoadArgs,
                                   SampleArgs, UnloadArgs>;

// A request that becomes a future. rpc/ has validated all that does not need the ledger.
struct Submit {
  CallId call = 0;
  std::string tenant_id;
  std::string owner_id;  // see OpClass
  OpClass op_class = OpClass::kTrain;
  int64_t seq_id = 0;  // 0 for kTrain: the caller gave none, and the core takes the next
  OperationKind kind = OperationKind::kForwardBackward;
  // Names a kTrain request without seq_id, so that a repetition finds it; empty: it has no name.
  std::string idempotency_key = "";
  std::string content_hash;
  PayloadRef payload;
  OperationArgs args;
  // Set if the request is invalid. An invalid forward or forward_backward is accepted and fails
  // through its future. Any other kind is refused, and its seq is recorded as consumed.
  std::optional<ErrorInfo> invalid;
  // For an invalid request of another kind: accept it too and fail it through its future.
  bool invalid_through_future = false;
};

// Returns true if a repetition has the same owner, class and number.
inline bool HasKey(const Submit& submit) {
  return submit.op_class != OpClass::kTrain || submit.seq_id > 0;
}

struct CreateSamplingSession {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
  int64_t sampling_session_seq_id = 0;
  std::string base_model;
  std::string model_path;
};

// Asks for a number that identifies a copy of a sampling client.
struct JoinSamplingSession {
  CallId call = 0;
  std::string tenant_id;
  std::string sampling_session_id;
};

struct DeleteCheckpoint {
  CallId call = 0;
  std::string tenant_id;
  std::string tinker_path;
  std::string actor = "";  // for the audit log
};

struct PublishCheckpoint {
  CallId call = 0;
  std::string tenant_id;
  std::string tinker_path;
  bool is_public = false;
  std::string actor = "";  // for the audit log
};

struct SetCheckpointTtl {
  CallId call = 0;
  std::string tenant_id;
  std::string tinker_path;
  int64_t ttl_seconds = 0;  // 0: never expires
  std::string actor = "";   // for the audit log
};

// Replaces the tenant's quota.
struct SetQuota {
  CallId call = 0;
  QuotaRow row;
  std::string tenant_name;
  std::string actor = "";  // for the audit log
};

// Makes the files in `dir` a checkpoint of a new run. They are links to the files of `source_path`.
// If the call is a duplicate or is refused, `dir` is deleted.
struct CopyCheckpoint {
  CallId call = 0;
  std::string tenant_id;
  std::string reader_tenant_id;  // as in LoadArgs
  std::string source_path;
  std::string source_dir;
  std::string dir;
  int64_t ttl_seconds = 0;  // 0: never expires
  // The new run is {session_id}:train:{model_seq_id}. If `makes_session`, the session is new too:
  // it ends at once and belongs to the project.
  std::string session_id;
  bool makes_session = false;
  std::string project_id;
  int64_t model_seq_id = 0;
  Metadata run_metadata;
  std::string actor = "";  // for the audit log
};

// Makes a directory from the trash the checkpoint that its manifest describes.
struct AdoptCheckpoint {
  CallId call = 0;
  CheckpointRow checkpoint;
  // True: the store does not know the run of the checkpoint, or the session of that run.
  bool makes_run = false;
  bool makes_session = false;
  std::string session_id;
  int64_t model_seq_id = 0;
};

// Assigns a session of the tenant to a project. The core may have forgotten the session already.
struct AssignSessionProject {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
  std::string project_id;
  std::string actor = "";  // for the audit log
};

// The answer with a result was written to its caller.
struct Delivered {
  std::string request_id;
  std::string tenant_id;  // of the caller
};

// The caller of the sample has left. Unless the sample is complete, it fails and its work is
// dropped.
struct CancelSample {
  CallId call = 0;  // 0: no call waits for an answer
  std::string tenant_id;
  std::string request_id;
};

// The core refuses new submissions from now on. It answers once nothing runs and the last snapshots
// are written.
struct Drain {
  CallId call = 0;
};

// Requests a migration of the model to `group`. The answer means that the request is durable. The
// migration happens when the model's running requests have ended and its state is on disk.
struct MoveModel {
  CallId call = 0;
  std::string model_id;
  std::string group;
};

// Takes the group out of service, or puts it back.
struct DrainGroup {
  CallId call = 0;
  std::string group;
  bool is_draining = true;
};

// Forgets a group whose workers have ended for good. Its models go to another group of their base
// model. If there is none, the base model is served no longer.
struct RemoveGroup {
  CallId call = 0;
  std::string group;
};

// ---- workers

// State of a model on a worker.
struct HeldModel {
  std::string model_id;
  int64_t applied_seq = 0;
  std::vector<int64_t> window;  // seqs of the gradients in the accumulator
};

// A sampler version on a worker. `seq_id`: publication of its weights; 0: from a checkpoint.
struct HeldVersion {
  std::string version_id;
  int64_t seq_id = 0;
  bool is_loading = false;  // its SendLoadVersion is not complete yet
};

// The base model that a worker has loaded.
struct ReadyModel {
  BaseModelRow row;
  int64_t kv_cache_tokens = 0;      // longest sequence that it can sample
  int64_t max_running_samples = 0;  // samples that it runs together; 0: unknown
};

// Number of ranks of a group along each axis, outermost first.
struct MeshShape {
  int64_t dp = 1;
  int64_t fsdp = 1;
  int64_t tp = 1;

  int64_t world() const { return dp * fsdp * tp; }
  bool operator==(const MeshShape&) const = default;
};

// The work a group does. Groups of one base model may have different roles.
enum class GroupRole { kBoth, kTrain, kSample };

// One rank of a group connected. Rank 0 reports the models, versions and requests for all ranks.
struct WorkerAttached {
  std::string group;
  int64_t stream_id = 0;  // distinguishes streams of one engine; commands carry it
  std::string process_id;
  std::string base_model;
  int64_t epoch = 0;  // epoch in which this process was formed or adopted; 0: none
  int64_t term = 0;
  std::vector<HeldModel> models;
  std::vector<HeldVersion> versions;
  std::vector<std::string> running_request_ids;
  std::optional<ReadyModel> ready;
  int64_t pid = 0;             // 0: unknown
  bool is_supervised = false;  // its parent reports how it ends
  int64_t rank = 0;
  MeshShape mesh;
  std::string session;  // rendezvous session it has joined or was sent; empty: none
  // Rendezvous address of rank 0 of a multi-rank group.
  std::string address;
  int64_t port = 0;
  GroupRole role = GroupRole::kBoth;  // only the role of rank 0 counts
  bool serves_versions = false;       // other groups can read versions from its memory
};

// WorkerReady and the events below are about rank 0, except WorkerDetached and WorkerExited.
struct WorkerReady {
  std::string group;
  ReadyModel model;
};

// How a worker's process ended. kCrashed and kOutOfMemory mean that the process failed by itself.
enum class LossCause {
  kUnknown,      // its connection ended, and it did not come back
  kCrashed,      // a signal or an exit code that means a crash
  kOutOfMemory,  // killed for memory
  kKilled,       // an external kill
  kEnded,        // an orderly end, by command or by an operator
  kSilent,       // declared dead: no heartbeat
  kStuck,        // declared dead: its work did not advance
  kPeerGone,     // it ended because a peer of its group had ended, for any reason
};

// The stream ended. `process_gone`: the process is known to be dead, or is declared dead.
struct WorkerDetached {
  std::string group;
  bool process_gone = false;
  LossCause cause = LossCause::kUnknown;
  std::string how;  // "signal 11", for people; set if the process is gone
  int64_t rank = 0;
};

// These requests are about to execute.
struct WorkerStarted {
  std::string group;
  int64_t epoch = 0;
  std::vector<std::string> request_ids;
};

// The number of a request's sequences that have ended since the worker began it. It only grows.
struct EndedSequences {
  std::string request_id;
  int64_t num_ended = 0;
};

// Sequences of running samples have ended. A report may be lost: the next one has its numbers too.
struct WorkerSampleProgress {
  std::string group;
  int64_t epoch = 0;
  std::vector<EndedSequences> ended;
};

// Exit of a worker as its parent reports it. The event may come before the end of the stream, after
// the attach of the next process, or twice.
struct WorkerExited {
  std::string group;
  int64_t pid = 0;
  LossCause cause = LossCause::kUnknown;
  std::string how;          // "signal 11"
  int64_t restart_in = -1;  // nanoseconds; -1: the parent will not restart it
  int64_t rank = 0;
};

struct WorkerDone {
  std::string group;
  int64_t epoch = 0;
  std::string request_id;
  std::optional<ErrorInfo> error;
  std::string result_id;  // names the encoded result in the runtime; set also for errors
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  std::optional<LoraConfig> lora;
  int64_t version_bytes = 0;
  std::optional<HeldModel> model;
  int64_t sampled_tokens = 0;        // sum over all samples
  int64_t cached_prompt_tokens = 0;  // prompt tokens that needed no prefill
  int64_t result_bytes = 0;          // size of the encoded result
};

// The store could not be read for the body of a command. The core will send the command again.
struct BodyUnavailable {
  std::string group;
  int64_t epoch = 0;
  std::string request_id;  // request of the command
};

// A SendLoadVersion is complete.
struct WorkerVersionLoaded {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  int64_t inflight_seq_id = 0;
};

// Outcome of a SendServeVersion.
struct WorkerVersionServed {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  std::string reader;
  int64_t seq_id = 0;  // publication that is served
  std::optional<ErrorInfo> error;
};

struct WorkerVersionFailed {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  ErrorInfo error;
};

// Outcome of a SendSnapshot.
struct WorkerSnapshotDone {
  std::string group;
  int64_t epoch = 0;
  std::string snapshot_id;
  std::optional<ErrorInfo> error;
  HeldModel model;  // state that was written
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  int64_t write_time = 0;  // busy time of a worker thread, in nanoseconds
};

// Outcome of a SendSaveVersion.
struct WorkerVersionSaved {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  std::string dir;
  std::optional<ErrorInfo> error;
  int64_t seq_id = 0;  // publication of its weights
  int64_t size_bytes = 0;
  std::string manifest_sha256;
};

using EventBody = std::variant<
    Loaded, Tick, Committed, CreateSession, Heartbeat, FinishSession, Submit, CreateSamplingSession,
    JoinSamplingSession, DeleteCheckpoint, PublishCheckpoint, SetCheckpointTtl, Delivered, Drain,
    WorkerAttached, WorkerReady, WorkerDetached, WorkerDone, WorkerVersionFailed, SetQuota,
    CancelSample, AdoptCheckpoint, CopyCheckpoint, AssignSessionProject, WorkerSnapshotDone,
    WorkerVersionSaved, BodyUnavailable, WorkerStarted, WorkerExited, MoveModel, DrainGroup,
    WorkerVersionLoaded, WorkerVersionServed, RemoveGroup, Continue, WorkerSampleProgress>;

struct Event {
  int64_t now = 0;  // nanoseconds since the Unix epoch
  EventBody body;
};

}  // namespace lathe::engine
