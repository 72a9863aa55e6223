// Reports that cross from executor/ back to rpc/, and facts about the loaded base model.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/ops/sampling.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// A worker's state of one model. The engine compares it with the ledger when it adopts the worker.
struct ModelState {
  std::string model_id;
  int64_t applied_seq = 0;      // seq_id of the last barrier that changed the weights
  std::vector<int64_t> window;  // seq_ids in the accumulator, ascending
};

struct Started {
  std::vector<std::string> request_ids;
};

struct TrainDone {
  std::string request_id;
  TrainOutput output;
};

struct StepDone {
  std::string request_id;
  std::vector<NamedMetric> metrics;
};

// CreateAdapter, LoadAdapter, RestoreAdapter, DropAdapter, PublishVersion.
struct OpDone {
  std::string request_id;
  LoraSpec lora;              // shape of the created, loaded or restored adapter
  int64_t version_bytes = 0;  // for PublishVersion: memory of the version
};

struct SaveDone {
  std::string request_id;
  int64_t size_bytes = 0;
  std::string manifest_sha256;
};

struct SampleDone {
  std::string request_id;
  SampleOutput output;
};

// One token of a streamed sample.
struct SampledToken {
  std::string request_id;
  int64_t sample_index = 0;
  int64_t token_index = 0;  // counts from the end of the prompt
  int32_t token = 0;
  float logprob = 0;
  bool finished = false;  // it is the sample's last token
  bool stopped = false;   // set with `finished`: as SampledSequence::stopped
};

// Number of a running request's sequences that have ended since its start.
struct EndedSequences {
  std::string request_id;
  int64_t num_ended = 0;

  bool operator==(const EndedSequences&) const = default;
};

// Progress of running samples in one pass. It answers no request: the result has all tokens.
struct SampleProgress {
  std::vector<SampledToken> tokens;   // of streamed samples
  std::vector<EndedSequences> ended;  // requests of which a sequence ended and others did not
};

// InvalidArgument and FailedPrecondition are the user's errors, all others the server's.
struct OpFailed {
  std::string request_id;
  absl::Status status;
};

// A sampler version and the PublishVersion that made its weights. `seq_id` 0: they come from a
// checkpoint.
struct HeldVersion {
  std::string version_id;
  int64_t seq_id = 0;
  bool is_loading = false;  // its LoadVersion is not answered yet

  bool operator==(const HeldVersion&) const = default;
};

// A LoadVersion has succeeded.
struct VersionLoaded {
  std::string version_id;
  int64_t inflight_seq_id = 0;
};

// The version of a ServeVersion can be read now, or the command failed.
struct VersionServed {
  std::string version_id;
  std::string reader;
  int64_t seq_id = 0;  // publication whose weights are served
  absl::Status status;
};

// A LoadVersion failed: samples that wait for it fail with `status`.
struct VersionFailed {
  std::string version_id;
  absl::Status status;
};

// A Snapshot is durable, or failed. Neither changes the model.
struct SnapshotDone {
  std::string snapshot_id;
  ModelState state;  // the state that was written
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  absl::Duration write_time;  // time that threads worked on it, without waits
  absl::Status status;        // not OK: only the ids above are valid
};

// The checkpoint of a SaveVersion is durable, or the command failed.
struct VersionSaved {
  std::string version_id;
  std::string dir;     // as in the command
  int64_t seq_id = 0;  // publication whose weights were written; 0: from a checkpoint
  int64_t size_bytes = 0;
  std::string manifest_sha256;
  absl::Status status;
};

using Report = std::variant<Started, TrainDone, StepDone, OpDone, SaveDone, SampleDone, OpFailed,
                            VersionFailed, SampleProgress, SnapshotDone, VersionSaved,
                            VersionLoaded, VersionServed>;

// Blocks of the KV cache.
struct KvUsage {
  int64_t num_blocks = 0;
  int64_t num_used = 0;  // blocks that sequences use
  int64_t num_idle = 0;  // blocks kept for a later sequence with the same prefix
};

// Facts that a worker reports about its base model once it is loaded.
struct ModelInfo {
  std::string name;
  std::string content_hash;  // SHA-256 over config and tensors' names, shapes and bytes
  std::string arch;          // HF model_type, "qwen3"
  int64_t max_context_length = 0;
  int64_t vocab_size = 0;
  std::string tokenizer_id;
  std::vector<int64_t> eos_token_ids;
  int64_t max_lora_rank = 512;
  int64_t token_budget = 0;         // tokens of one micro-batch
  int64_t kv_cache_tokens = 0;      // longest sequence (prompt and sampled) that can be sampled
  int64_t max_running_samples = 0;  // samples that decode together, over all replicas
  std::vector<LoraModule> lora_modules;  // those of the model, in the order of adapters
  bool tied_embeddings = false;
};

}  // namespace lathe::worker
