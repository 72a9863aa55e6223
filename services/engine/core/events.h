// What happens to the core. Events carry everything the core may use: time, randomness (a seed in
// Loaded) and sizes; bodies and results stay outside and are named by id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A caller that waits for an answer; chosen by rpc/, echoed in Answer. 0: nobody waits.
using CallId = uint64_t;

struct ErrorInfo {
  absl::StatusCode status = absl::StatusCode::kOk;
  std::string code;  // stable word
  std::string field;
  std::string message;
  int64_t retry_after_seconds = 0;  // when another try may succeed; 0: unknown
};

struct PayloadRef {
  std::string body_id;  // empty: no body
  int64_t bytes = 0;
  int64_t tokens = 0;
};

// First event: a leader starts with what the store holds.
struct Loaded {
  StoredState state;
  uint64_t random_seed = 0;
};

// About every second.
struct Tick {};

// Every Commit up to and including this one is durable.
struct Committed {
  uint64_t commit_id = 0;
};

// ---- callers

struct CreateSession {
  CallId call = 0;
  SessionRow row;  // tenant, ordering, metadata…; id and times are the core's
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

struct TrainArgs {
  bool forward_only = false;
  int64_t num_datums = 0;
};

struct OptimStepArgs {
  double learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, grad_clip_norm = 0;
};

struct SaveArgs {
  std::string name;                      // empty: unnamed sampler form
  int64_t sampling_session_seq_id = -1;  // unnamed form
  bool inflight = false;                 // unnamed form: all of the model's move on together
  int64_t ttl_seconds = 0;               // 0: never expires
  bool overwrite = false;
  Metadata user_metadata;
  std::vector<std::string> age_recipients;  // kSaveWeightsExternal; empty: not encrypted
};

struct LoadArgs {
  std::string path;
  bool with_optimizer = false;
  bool creates_model = false;  // create-via-load: owner is the session, seq is model_seq_id
  std::string base_model;
  Metadata user_metadata;
  // What user_metadata says of the adapter: the checkpoint must have it. Unset, empty: nothing.
  std::optional<double> lora_alpha;
  std::vector<std::string> target_modules;
  // Of the weights access token: may read the checkpoint too. Empty: none was given.
  std::string reader_tenant_id;
};

struct SampleArgs {
  int64_t num_samples = 1;
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // 0: unset, to the context's end
  bool has_seed = false;
  uint64_t seed = 0;
};

struct UnloadArgs {};

using OperationArgs = std::variant<CreateModelArgs, TrainArgs, OptimStepArgs, SaveArgs, LoadArgs,
                                   SampleArgs, UnloadArgs>;

// A request that becomes a future. Already validated as far as it can be without the ledger.
struct Submit {
  CallId call = 0;
  std::string tenant_id;
  std::string owner_id;  // see OpClass
  OpClass op_class = OpClass::kTrain;
  int64_t seq_id = 0;  // 0 on kTrain: none given, take the next
  OperationKind kind = OperationKind::kForwardBackward;
  std::string content_hash;
  PayloadRef payload;
  OperationArgs args;
  // Set: invalid. forward/forward_backward are then accepted and failed through the future; any
  // other kind is refused and its seq recorded as consumed.
  std::optional<ErrorInfo> invalid;
  // Of an invalid request of another kind: it too is accepted and failed through the future.
  bool invalid_through_future = false;
};

struct CreateSamplingSession {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
  int64_t sampling_session_seq_id = 0;
  std::string base_model;
  std::string model_path;
};

// Numbers a copy of a sampling client.
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

// The files of `source_path` lie in `dir` too: names them as a checkpoint of a run of its own. A
// repetition, and a refusal, drop `dir`.
struct CopyCheckpoint {
  CallId call = 0;
  std::string tenant_id;
  std::string reader_tenant_id;  // as in LoadArgs
  std::string source_path;
  std::string source_dir;
  std::string dir;
  int64_t ttl_seconds = 0;  // 0: never expires
  // The new run is {session_id}:train:{model_seq_id}. `makes_session`: so is the session, which
  // ends at once and belongs to the project.
  std::string session_id;
  bool makes_session = false;
  std::string project_id;
  int64_t model_seq_id = 0;
  Metadata run_metadata;
  std::string actor = "";  // for the audit log
};

// A session that is the tenant's, also one that is over and forgotten here.
struct AssignSessionProject {
  CallId call = 0;
  std::string tenant_id;
  std::string session_id;
  std::string project_id;
  std::string actor = "";  // for the audit log
};

// A result was handed to its caller for the first time.
struct Delivered {
  std::string request_id;
};

// Whoever wanted the sample has left: unless it is complete, it fails and its work is dropped.
struct CancelSample {
  CallId call = 0;  // 0: nobody waits for an answer
  std::string tenant_id;
  std::string request_id;
};

// New submissions are refused from now on; answered (an Answer) once nothing is pending.
struct Drain {
  CallId call = 0;
};

// The model is to live on that group. Answered when this is durable; it moves when its running
// requests have ended and it is on disk.
struct MoveModel {
  CallId call = 0;
  std::string model_id;
  std::string group;
};

// The group is to be taken out of service, or to be used again.
struct DrainGroup {
  CallId call = 0;
  std::string group;
  bool is_draining = true;
};

// ---- workers

struct HeldModel {
  std::string model_id;
  int64_t applied_seq = 0;
  std::vector<int64_t> window;
};

// A sampler version, and the publication whose weights it has; 0: those of a checkpoint.
struct HeldVersion {
  std::string version_id;
  int64_t seq_id = 0;
  bool is_loading = false;  // its SendLoadVersion is not answered yet
};

// What a worker has loaded.
struct ReadyModel {
  BaseModelRow row;
  int64_t kv_cache_tokens = 0;  // longest sequence that it can sample
};

// How many ranks a group has along each axis, from the outermost.
struct MeshShape {
  int64_t dp = 1;
  int64_t fsdp = 1;
  int64_t tp = 1;

  int64_t world() const { return dp * fsdp * tp; }
  bool operator==(const MeshShape&) const = default;
};

// What a group is used for: groups of one base model may share the work.
enum class GroupRole { kBoth, kTrain, kSample };

// One rank of a group. What it holds and runs is said by rank 0 for all.
struct WorkerAttached {
  std::string group;
  int64_t stream_id = 0;  // tells streams of one engine apart; commands name it
  std::string process_id;
  std::string base_model;
  int64_t epoch = 0;  // that this process was formed or adopted with; 0: none
  int64_t term = 0;
  std::vector<HeldModel> models;
  std::vector<HeldVersion> versions;
  std::vector<std::string> running_request_ids;
  std::optional<ReadyModel> ready;
  int64_t pid = 0;             // 0: not told
  bool is_supervised = false;  // its parent says how it ends
  int64_t rank = 0;
  MeshShape mesh;
  std::string session;  // it has met its peers under, or is to; empty: it was not told
  // Rank 0 of several: where its peers may meet it.
  std::string address;
  int64_t port = 0;
  GroupRole role = GroupRole::kBoth;  // of rank 0 it counts
  bool serves_versions = false;       // other groups can read those that it has in memory
};

// These and what follows come from rank 0, but for the ends of others.
struct WorkerReady {
  std::string group;
  ReadyModel model;
};

// What became of a worker's process. Only one that crashed or ran out of memory died by itself.
enum class LossCause {
  kUnknown,      // its connection ended, and it did not come back
  kCrashed,      // a signal of its own, or an exit code that says so
  kOutOfMemory,  // killed for memory
  kKilled,       // by somebody outside
  kEnded,        // it was told to end, or somebody stopped it in good order
  kSilent,       // declared dead: no heartbeat
  kStuck,        // declared dead: its work did not advance
  kPeerGone,     // it ended because a peer of its group had, by whatever
};

// The stream ended. `process_gone`: the process is known, or declared, dead.
struct WorkerDetached {
  std::string group;
  bool process_gone = false;
  LossCause cause = LossCause::kUnknown;
  std::string how;  // "signal 11", for people; of a process that is gone
  int64_t rank = 0;
};

// These requests are about to execute.
struct WorkerStarted {
  std::string group;
  int64_t epoch = 0;
  std::vector<std::string> request_ids;
};

// What the parent saw. May come before the stream's end, after the next process has attached, or
// twice.
struct WorkerExited {
  std::string group;
  int64_t pid = 0;
  LossCause cause = LossCause::kUnknown;
  std::string how;          // "signal 11"
  int64_t restart_in = -1;  // nanoseconds; -1: it is not started again
  int64_t rank = 0;
};

struct WorkerDone {
  std::string group;
  int64_t epoch = 0;
  std::string request_id;
  std::optional<ErrorInfo> error;
  std::string result_id;  // the encoded result, held by the runtime; set also for errors
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  std::optional<LoraConfig> lora;
  int64_t version_bytes = 0;
  std::optional<HeldModel> model;
  int64_t sampled_tokens = 0;        // of all samples
  int64_t cached_prompt_tokens = 0;  // that needed no prefill
};

// The store could not be asked for the body of a command that was to be sent: it is told again.
struct BodyUnavailable {
  std::string group;
  int64_t epoch = 0;
  std::string request_id;  // of the command
};

// A SendLoadVersion is done.
struct WorkerVersionLoaded {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  int64_t inflight_seq_id = 0;
};

// What a SendServeVersion came to.
struct WorkerVersionServed {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  std::string reader;
  int64_t seq_id = 0;  // of the publication that is served
  std::optional<ErrorInfo> error;
};

struct WorkerVersionFailed {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  ErrorInfo error;
};

// What a SendSnapshot came to.
struct WorkerSnapshotDone {
  std::string group;
  int64_t epoch = 0;
  std::string snapshot_id;
  std::optional<ErrorInfo> error;
  HeldModel model;  // as it was written
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  int64_t write_time = 0;  // nanoseconds a thread of the worker was busy with it
};

// What a SendSaveVersion came to.
struct WorkerVersionSaved {
  std::string group;
  int64_t epoch = 0;
  std::string version_id;
  std::string dir;
  std::optional<ErrorInfo> error;
  int64_t seq_id = 0;  // of the publication whose weights it has
  int64_t size_bytes = 0;
  std::string manifest_sha256;
};

using EventBody =
    std::variant<Loaded, Tick, Committed, CreateSession, Heartbeat, FinishSession, Submit,
                 CreateSamplingSession, JoinSamplingSession, DeleteCheckpoint, PublishCheckpoint,
                 SetCheckpointTtl, Delivered, Drain, WorkerAttached, WorkerReady, WorkerDetached,
                 WorkerDone, WorkerVersionFailed, SetQuota, CancelSample, CopyCheckpoint,
                 AssignSessionProject, WorkerSnapshotDone, WorkerVersionSaved, BodyUnavailable,
                 WorkerStarted, WorkerExited, MoveModel, DrainGroup, WorkerVersionLoaded,
                 WorkerVersionServed>;

struct Event {
  int64_t now = 0;  // nanoseconds since the Unix epoch
  EventBody body;
};

}  // namespace lathe::engine
