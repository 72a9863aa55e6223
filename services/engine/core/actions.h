// Actions that the core emits. The runtime executes the actions of one Step in order and never
// waits.
// - It hands a Commit to the store's thread. An event Committed follows each Commit, in the same
//   order.
// - The core emits what depends on durability (answers, dispatches) only after that event.
// - A MakeResult comes before the Commit that names its result.
// - The runtime drops a SendToWorker whose stream has ended. The core sends everything unfinished
//   again when the group attaches.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/engine/core/events.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

struct Commit {
  uint64_t commit_id = 0;
  std::vector<Write> writes;
};

// Ends a call of rpc/. The call determines which fields are set.
struct Answer {
  CallId call = 0;
  std::optional<ErrorInfo> error;
  std::string id;                                // request_id, session_id, sampling_session_id
  std::vector<std::string> sample_sequence_ids;  // Sample
  std::string group;                             // Submit: group of the queue state; may be empty
  bool session_finished = false;                 // Heartbeat
  int64_t client_counter = 0;                    // JoinSamplingSession
  std::vector<std::string> unsaved_model_ids;    // Drain
  int64_t pending_requests = 0;                  // Drain
};

// The runtime encodes a result that the core decided by itself and holds it under `result_id`. If
// `error` is unset, the result is a success of `kind` with the given fields.
struct MakeResult {
  std::string result_id;
  std::string request_id;
  OperationKind kind = OperationKind::kForwardBackward;
  std::optional<ErrorInfo> error;
  std::string model_id;
  std::string path;
  std::string sampling_session_id;
  int64_t size_bytes = 0;  // kSaveWeightsExternal
};

// The result is durable: the runtime wakes the callers that wait for it.
struct NotifyDone {
  std::string request_id;
};

enum class GroupTrouble {
  kNone,
  kDegraded,  // its worker died repeatedly
  kRefused,   // its worker serves other files than its models were trained on
};

// The availability of a group changed. Waiting callers are notified with their next poll.
struct NotifyQueueState {
  std::string group;
  bool paused = false;  // no live worker
  std::string reason;
  GroupTrouble trouble = GroupTrouble::kNone;
};

// The reason why no request of a model starts, independent of its group. Waiting callers are
// notified with their next poll.
struct NotifyModelState {
  std::string model_id;
  bool is_away = false;       // true while no worker has its state
  int64_t missing_seq = 0;    // smallest seq that has not arrived; 0: none
  int64_t gap_closes_at = 0;  // time at which the wait for it ends; 0: unknown
  std::string reason;         // any other reason for the wait, for people; empty: none
  bool operator==(const NotifyModelState&) const = default;
};

// The request moved to another group, whose queue state now applies. `group` is empty while no
// group is chosen.
struct NotifyGroup {
  std::string request_id;
  std::string group;
};

// Progress of a group's drain, for people.
struct NotifyGroupDrain {
  std::string group;
  bool is_draining = false;
  std::string left;  // what is still on it: "2 models, 1 request"; empty: nothing
  bool operator==(const NotifyGroupDrain&) const = default;
};

// The holdings of a tenant.
struct TenantUsage {
  int64_t num_rows = 0;  // unfinished requests
  int64_t bytes = 0;     // size of their bodies
  int64_t sessions = 0;  // sessions that have not ended
  int64_t samplers = 0;
  int64_t reserved_samplers = 0;  // samplers that unfinished saves will make
  int64_t reserved_bytes = 0;     // expected size of the checkpoints that unfinished saves write
  int64_t unfetched_results = 0;  // finished results that nobody has fetched
  int64_t unfetched_bytes = 0;    // size of these results
  bool operator==(const TenantUsage&) const = default;
};

// The room that the limits leave to a tenant. The core would refuse a larger request now.
struct TenantRoom {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  int64_t rows = kNoLimit;
  int64_t bytes = kNoLimit;
  int64_t requests_from = 0;  // time at which a rate allows the next request
  int64_t tokens = kNoLimit;  // tokens that a rate allows until `tokens_until`
  int64_t tokens_until = 0;   // time at which the rate allows more tokens

  bool Allows(const PayloadRef& payload, int64_t now) const {
    return rows > 0 && payload.bytes <= bytes && now >= requests_from &&
           (payload.tokens == 0 || payload.tokens <= tokens || now >= tokens_until);
  }
  bool operator==(const TenantRoom&) const = default;
};

// The use or the room of a tenant has changed.
struct NotifyTenant {
  std::string tenant_id;
  TenantUsage usage;
  TenantRoom room;
};

// ---- commands to the group's worker

// The rendezvous of the ranks of a multi-rank group.
struct RendezvousPoint {
  std::string session;  // names this set of processes
  std::string address;  // address of rank 0
  int64_t port = 0;
};

struct FormGroup {
  int64_t term = 0;
  std::optional<RendezvousPoint> rendezvous;  // set for a group of several ranks
};
struct AdoptGroup {
  int64_t term = 0;
};

struct SendTrainBatch {
  struct Item {
    std::string request_id;
    std::string body_id;
    // Seq under which the item runs. The request may have left it open.
    int64_t seq_id = 0;
  };
  std::vector<Item> items;
};

struct SendOptimStep {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  int64_t expected_applied_seq = 0;
  std::vector<int64_t> window;
  std::string adam_params;  // see OptimStepArgs
};

struct SendCreateAdapter {
  std::string request_id;
  std::string model_id;
  LoraConfig lora;
};

struct SendLoadAdapter {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  std::string dir;
  bool with_optimizer = false;
};

struct SendDropAdapter {
  std::string request_id;  // empty: no request waits
  std::string model_id;
};

struct SendClearGradient {
  std::string model_id;
};

struct SendSaveCheckpoint {
  std::string request_id;
  CheckpointRow row;  // its dir, kind and names go into the manifest
  int64_t seq_id = 0;
  int64_t term = 0;
  std::vector<std::string> age_recipients;
};

struct SendPublishVersion {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  std::string version_id;
  bool is_inflight = false;
};

struct SendLoadVersion {
  std::string version_id;
  std::string dir;
  int64_t inflight_seq_id = 0;  // Not 0: an inflight version with the weights of that publication.
  // Group from whose rank 0 the version is read, from memory, as publication `source_seq_id`.
  // Empty: it is read from `dir`.
  std::string source_group;
  int64_t source_seq_id = 0;
};

// Lets each rank of group `reader` read a version from the worker's memory once.
struct SendServeVersion {
  std::string version_id;
  std::string reader;
  int64_t num_reads = 1;  // number of these ranks
};

// Writes a version from the worker's memory to `dir`, in the form that SendLoadVersion reads.
struct SendSaveVersion {
  std::string version_id;
  std::string model_id;
  std::string tenant_id;
  std::string dir;
  int64_t term = 0;
};

// Writes the whole state of a model, including the gradient accumulator and its window.
struct SendSnapshot {
  std::string snapshot_id;  // also names the directory
  std::string model_id;
  std::string tenant_id;
  int64_t term = 0;
};

// Replaces the state of a model by that of a snapshot.
struct SendRestoreAdapter {
  std::string request_id;
  std::string model_id;
  std::string snapshot_id;
};

struct SendDropVersion {
  std::string version_id;
};

struct SendSample {
  std::string request_id;
  std::string tenant_id;
  std::string version_id;  // empty: the base model
  std::string body_id;
  uint64_t seed = 0;
  int64_t max_tokens = 0;
};

struct SendCancel {
  std::string request_id;
};

// The results are durable or dropped: the worker need not keep them.
struct SendAck {
  std::vector<std::string> request_ids;
};

// Asks the worker to end. The parent that started the process is asked to kill it too.
struct SendDie {
  std::string reason;
};

using WorkerCommand =
    std::variant<FormGroup, AdoptGroup, SendTrainBatch, SendOptimStep, SendCreateAdapter,
                 SendLoadAdapter, SendDropAdapter, SendClearGradient, SendSaveCheckpoint,
                 SendPublishVersion, SendLoadVersion, SendDropVersion, SendSample, SendCancel,
                 SendAck, SendDie, SendSaveVersion, SendSnapshot, SendRestoreAdapter,
                 SendServeVersion>;

// A command, decided for the worker on stream `stream_id`. The runtime drops it if another stream
// of the rank has replaced `stream_id`. Ranks other than 0 get FormGroup, AdoptGroup and SendDie
// only.
struct SendToWorker {
  std::string group;
  int64_t stream_id = 0;
  int64_t epoch = 0;
  WorkerCommand command;
  int64_t rank = 0;
};

// A recovery ended, fell back to another start, or lost its model. The runtime logs and counts it.
struct RecordRecovery {
  // kResumed: the model had been offloaded.
  enum class Outcome { kRecovered, kResumed, kFellBack, kLost };
  std::string model_id;
  Outcome outcome = Outcome::kRecovered;
  std::string detail;        // why a start was skipped or the model was lost
  int64_t num_replayed = 0;  // number of operations that ran again
  int64_t nanoseconds = 0;   // time since the model began to need the recovery
};

// The process of a worker has ended. The runtime logs and counts it.
struct RecordWorkerLost {
  std::string group;
  LossCause cause = LossCause::kUnknown;
  std::string how;
};

// A group got, or failed to get, an unnamed version of a model that another group trains. The
// runtime logs failures and counts all outcomes.
struct RecordWeightTransfer {
  // kFailed: the transfer from memory failed; `why` has the reason.
  enum class Transport { kMemory, kFile, kFailed };
  std::string version_id;
  std::string from;
  std::string to;
  Transport transport = Transport::kMemory;
  std::string why;
};

// An operation ran again. The runtime measures the difference from the first result, and drops the
// new one.
struct CompareReplay {
  std::string request_id;
  std::string result_id;
};

// Deletes the files of a checkpoint that no row names any more.
struct DeleteFiles {
  std::string dir;
};

// Moves all directories but `needed_dirs` to the trash. The core emits it once, when a new leader
// starts. It finds what a crash during a save, a copy or a deletion has left behind, and what is
// newer than a database that was restored.
struct DeleteOtherFiles {
  std::vector<std::string> needed_dirs;  // sorted
};

// Drops a body that is no longer needed.
struct ForgetBody {
  std::string body_id;
};

// Drops the result of a WorkerDone that no CompleteRequest will name.
struct ForgetResult {
  std::string result_id;
};

// Asks for a Continue, behind the events that wait already. Emitted once until the Continue comes.
struct ContinueLater {};

using Action =
    std::variant<Commit, Answer, MakeResult, NotifyDone, NotifyQueueState, NotifyModelState,
                 SendToWorker, DeleteFiles, DeleteOtherFiles, ForgetBody, ForgetResult,
                 RecordRecovery, CompareReplay, RecordWorkerLost, NotifyGroup, NotifyGroupDrain,
                 RecordWeightTransfer, ContinueLater, NotifyTenant>;

}  // namespace lathe::engine
