// What the core wants done. The runtime executes the actions of one Step in order and never waits:
// a Commit is handed to the store's thread and followed, in order, by an event Committed. Whatever
// depends on durability (answers, dispatches) is emitted by the core only then. A MakeResult comes
// before the Commit that names its result. SendToWorker to a stream that is over is dropped: the
// core sends everything unfinished again when the group attaches.
#pragma once

#include <cstdint>
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

// Ends a call of rpc/. Which field is set follows from the call.
struct Answer {
  CallId call = 0;
  std::optional<ErrorInfo> error;
  std::string id;                                // request_id, session_id, sampling_session_id
  std::vector<std::string> sample_sequence_ids;  // Sample
  std::string group;                             // Submit: whose queue state applies; may be empty
  bool session_finished = false;                 // Heartbeat
  int64_t client_counter = 0;                    // JoinSamplingSession
  std::vector<std::string> unsaved_model_ids;    // Drain
  int64_t pending_requests = 0;                  // Drain
};

// The runtime encodes a result the core decided by itself and holds it under `result_id`.
// `error` unset: success of `kind` with the fields given.
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

// The result is durable: wake whoever waits for it.
struct NotifyDone {
  std::string request_id;
};

enum class GroupTrouble {
  kNone,
  kDegraded,  // its worker dies again and again
  kRefused,   // its worker serves other files than its models were trained on
};

// Group's availability changed; waiting callers are told with the next poll.
struct NotifyQueueState {
  std::string group;
  bool paused = false;  // no live worker
  std::string reason;
  GroupTrouble trouble = GroupTrouble::kNone;
};

// Why nothing of a model begins, whatever its group does. Waiting callers are told with the next
// poll.
struct NotifyModelState {
  std::string model_id;
  bool is_away = false;       // until a worker has its state again
  int64_t missing_seq = 0;    // that has not arrived; 0: none
  int64_t gap_closes_at = 0;  // then it is not waited for any more; 0: unknown
  std::string reason;         // what else holds it up, for people; empty: nothing
  bool operator==(const NotifyModelState&) const = default;
};

// Another group serves the request from now on: whose queue state applies. Empty: none does yet.
struct NotifyGroup {
  std::string request_id;
  std::string group;
};

// How far a group is with giving up what it has; for people.
struct NotifyGroupDrain {
  std::string group;
  bool is_draining = false;
  std::string left;  // "2 models, 1 request"; empty: nothing
  bool operator==(const NotifyGroupDrain&) const = default;
};

// ---- to the group's worker

// Where the ranks of a group of several find each other.
struct Meeting {
  std::string session;  // of this set of processes
  std::string address;  // of rank 0
  int64_t port = 0;
};

struct FormGroup {
  int64_t term = 0;
  std::optional<Meeting> meeting;  // of several ranks
};
struct AdoptGroup {
  int64_t term = 0;
};

struct SendTrainBatch {
  struct Item {
    std::string request_id;
    std::string body_id;
    // Seq the item runs under (the request may have left it open).
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
  OptimStepArgs adam;
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
  std::string request_id;  // empty: nobody waits
  std::string model_id;
};

struct SendClearGradient {
  std::string model_id;
};

struct SendSaveCheckpoint {
  std::string request_id;
  CheckpointRow row;  // dir, kind, names for the manifest
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
  int64_t inflight_seq_id = 0;  // not 0: an inflight version with the weights of that publication
  // Not empty: it is read from the memory of that group's rank 0, as publication `source_seq_id`.
  std::string source_group;
  int64_t source_seq_id = 0;
};

// Lets the ranks of group `reader` read a version the worker has, each once.
struct SendServeVersion {
  std::string version_id;
  std::string reader;
  int64_t num_reads = 1;
};

// Writes a version the worker has to `dir`, as SendLoadVersion reads it.
struct SendSaveVersion {
  std::string version_id;
  std::string model_id;
  std::string tenant_id;
  std::string dir;
  int64_t term = 0;
};

// Writes a model's whole state, accumulator and window included.
struct SendSnapshot {
  std::string snapshot_id;  // and the directory
  std::string model_id;
  std::string tenant_id;
  int64_t term = 0;
};

// Gives a model the state of a snapshot; replaces what it had.
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

struct SendAck {
  std::vector<std::string> request_ids;
};

// Whoever has started the process is asked to kill it too.
struct SendDie {
  std::string reason;
};

using WorkerCommand =
    std::variant<FormGroup, AdoptGroup, SendTrainBatch, SendOptimStep, SendCreateAdapter,
                 SendLoadAdapter, SendDropAdapter, SendClearGradient, SendSaveCheckpoint,
                 SendPublishVersion, SendLoadVersion, SendDropVersion, SendSample, SendCancel,
                 SendAck, SendDie, SendSaveVersion, SendSnapshot, SendRestoreAdapter,
                 SendServeVersion>;

// Decided for what its worker said on that stream: dropped if another one has taken its place.
// Ranks other than 0 get FormGroup, AdoptGroup and SendDie only.
struct SendToWorker {
  std::string group;
  int64_t stream_id = 0;
  int64_t epoch = 0;
  WorkerCommand command;
  int64_t rank = 0;
};

// A model was rebuilt, or is given up; for people.
struct NoteRecovery {
  enum class Outcome { kRecovered, kResumed, kFellBack, kLost };  // kResumed: was parked
  std::string model_id;
  Outcome outcome = Outcome::kRecovered;
  std::string detail;        // why a start was passed over or the model lost
  int64_t num_replayed = 0;  // operations
  int64_t nanoseconds = 0;   // since it was missed
};

// A worker's process is gone; for people and metrics.
struct NoteWorkerLost {
  std::string group;
  LossCause cause = LossCause::kUnknown;
  std::string how;
};

// A group has got, or not, an unnamed version of a model that another one trains; for people and
// metrics.
struct NoteVersionTravel {
  enum class Way { kMemory, kFile, kFailed };  // kFailed: not from memory, `why` says the reason
  std::string version_id;
  std::string from;
  std::string to;
  Way way = Way::kMemory;
  std::string why;
};

// An operation ran again: the difference from what it gave before is measured. Forgets the result.
struct CompareReplay {
  std::string request_id;
  std::string result_id;
};

// Files of a checkpoint that no row names any more.
struct DeleteFiles {
  std::string dir;
};

// A leader starts: of the directories it found, only these are needed. What a crash left of a save,
// a copy or a deletion goes.
struct DeleteOtherFiles {
  std::vector<std::string> needed_dirs;  // sorted
};

// Nobody needs this body any more.
struct ForgetBody {
  std::string body_id;
};

// A result of a WorkerDone that no CompleteRequest will name.
struct ForgetResult {
  std::string result_id;
};

using Action = std::variant<Commit, Answer, MakeResult, NotifyDone, NotifyQueueState,
                            NotifyModelState, SendToWorker, DeleteFiles, DeleteOtherFiles,
                            ForgetBody, ForgetResult, NoteRecovery, CompareReplay, NoteWorkerLost,
                            NotifyGroup, NotifyGroupDrain, NoteVersionTravel>;

}  // namespace lathe::engine
