// Inputs of the core. Events carry everything that the core may use: time, randomness (a seed in
// Loaded) and sizes. Bodies and results stay outside and are named by id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/engine/core/error_info.h"
#include "services/engine/core/worker_events.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A call that waits for an answer. rpc/ chooses the id and Answer repeats it. 0: no call waits.
using CallId = uint64_t;

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
  std::string tenant_id = "";  // of the actor, for the audit log; empty: of no tenant
  std::string actor = "";      // for the audit log
};

// Takes the group out of service, or puts it back.
struct DrainGroup {
  CallId call = 0;
  std::string group;
  bool is_draining = true;
  std::string tenant_id = "";  // as in MoveModel
  std::string actor = "";
};

// Forgets a group whose workers have ended for good. Its models go to another group of their base
// model. If there is none, the base model is served no longer.
struct RemoveGroup {
  CallId call = 0;
  std::string group;
  std::string tenant_id = "";  // as in MoveModel
  std::string actor = "";
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
