// Reports of workers to the core.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/engine/core/error_info.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

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
  std::string refusal;                // why no work may be given to it, for people; empty: it may
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

}  // namespace lathe::engine
