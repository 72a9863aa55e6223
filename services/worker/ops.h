// Native commands and reports that cross from rpc/ (protobuf, gRPC) to executor/ (torch) and back.
// This header separates protobuf from torch: it includes neither.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/lora/lora_modules.h"
#include "libs/common/losses/loss.h"

namespace lathe::worker {

// Shape of one LoRA adapter. `alpha / rank` scales B·A (PEFT's convention).
struct LoraSpec {
  int64_t rank = 32;  // 1…512
  double alpha = 32.0;
  uint64_t seed = 0;  // set by the engine when it accepts the request
  // A subset of kLoraModules in its order, at least one; the engine fills in values that callers
  // omit.
  std::vector<std::string> target_modules = AllLoraModules();
};

// One validated training sequence: every vector has the length given in its comment.
struct TrainDatum {
  std::vector<int32_t> tokens;    // [N]
  int64_t num_targets = 1;        // K
  bool targets_2d = false;        // (N, K) on the wire even when K is 1
  std::vector<int64_t> targets;   // [N·K]
  std::vector<float> weights;     // [N·K], cross_entropy only
  std::vector<float> logprobs;    // [N], the other losses
  std::vector<float> advantages;  // [N], the other losses
  std::vector<float> clip_low;    // [N] or empty: per-token bound that overrides LossSpec
  std::vector<float> clip_high;   // [N] or empty
  // [N], 1 or 0. gspo: the tokens that form the sequence's ratio. stable_reinforce: the sampled
  // tokens.
  std::vector<float> mask;
  std::vector<float> reference_logprobs;  // [N·K] with kl_coef, else empty
  double loss_scale = 1.0;                // factor of its losses, from LossSpec::normalization
};

struct TrainRequest {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  bool forward_only = false;
  LossSpec loss;
  std::vector<TrainDatum> data;
};

struct NamedMetric {
  std::string name;  // "loss:sum"
  double value = 0;
};

// Result of one TrainRequest.
struct TrainOutput {
  std::vector<std::vector<float>> logprobs;  // per datum [N·K], row-major
  std::vector<NamedMetric> metrics;
};

struct AdamParams {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weight_decay = 0.0;
  double grad_clip_norm = 0.0;  // 0 = off
};

// Action of an optim_step on a gradient that is not finite.
enum class NonFiniteGradients {
  kSkip,   // drops it; weights and moments do not change, the metrics report it
  kApply,  // applies the step anyway
  kFail,   // drops it; the optim_step fails
};

struct SamplingParams {
  int64_t max_tokens = 0;    // always set; the engine replaces "unset" by the end of the context
  double temperature = 1.0;  // 0 = greedy
  int64_t top_k = -1;        // -1 = off
  double top_p = 1.0;        // 1 = off
  double min_p = 0.0;        // 0 = off
  uint64_t seed = 0;         // set by the engine when it accepts the request
  bool ignore_eos = false;   // `stop: []`
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
};

// Tokens to score at the prompt positions after the first, in the client's layout.
struct PromptTargets {
  int64_t num_columns = 0;
  bool is_sparse = false;
  std::vector<int64_t> offsets;  // [prompt]: cells of row i are offsets[i] … offsets[i + 1] - 1
  std::vector<int64_t> columns;  // one for each cell, if is_sparse
  std::vector<int64_t> tokens;   // one for each cell; -1: nothing to score
};

// One `asample`. An empty `version_id` is the base model.
struct SampleRequest {
  std::string request_id;
  std::string tenant_id;  // scope of the prefix cache; empty: it is not used
  std::string version_id;
  std::vector<int32_t> prompt;
  int64_t num_samples = 1;
  SamplingParams params;
  bool prompt_logprobs = false;
  int64_t topk_prompt_logprobs = 0;
  int64_t prompt_logprobs_last_n = 0;            // 0: the whole prompt
  std::shared_ptr<const PromptTargets> targets;  // null: none
  int64_t prompt_alt_tokens_k = 0;
  int64_t topk_sample_logprobs = 0;
  bool streamed = false;  // reports tokens as they are sampled
};

// Consecutive tokens sampled under the same weights.
struct WeightsRun {
  int64_t seq_id = 0;  // seq_id of the PublishVersion
  int64_t num_tokens = 0;
};

// Values that clients read as an undefined entry of top-k logprobs.
inline constexpr int32_t kNoTopToken = 0;
inline constexpr float kNoTopLogprob = -99999.0f;

struct TopkLogprobs {
  int64_t k = 0;
  int64_t length = 0;
  std::vector<int32_t> token_ids;  // [length·k]
  std::vector<float> logprobs;     // [length·k]
};

struct SampledSequence {
  bool stopped = false;  // false = max_tokens reached
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<WeightsRun> weights_runs;  // set for an inflight version, else empty
  std::optional<TopkLogprobs> topk_logprobs;
};

struct PromptTargetLogprobs {
  std::shared_ptr<const PromptTargets> targets;  // the layout of `logprobs`
  std::vector<float> logprobs;                   // one for each cell; 0: nothing to score
};

// Tokens sampled at each prompt position after the first.
struct PromptAltTokens {
  int64_t k = 0;
  std::vector<int32_t> tokens;  // [(prompt - 1)·k]
  std::vector<float> logprobs;  // [(prompt - 1)·k], under the distribution they were sampled from
};

struct SampleOutput {
  std::vector<SampledSequence> sequences;
  std::vector<float> prompt_logprobs;  // empty or [prompt], NaN where not scored
  std::optional<TopkLogprobs> topk_prompt_logprobs;
  std::optional<PromptTargetLogprobs> target_prompt_logprobs;
  std::optional<PromptAltTokens> prompt_alt_tokens;
  int64_t prompt_cache_hit_tokens = 0;
};

// ---- commands, engine -> executor -------------------------------------------------------------

struct TrainBatch {
  std::vector<TrainRequest> requests;
};

struct CreateAdapter {
  std::string request_id;
  std::string model_id;
  LoraSpec lora;
};

// Replaces a model's weights by those in `dir`. Creates the model if it is new.
struct LoadAdapter {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;  // 0: the load creates the model
  std::string dir;     // below the root of the checkpoint store
  bool with_optimizer = false;
};

// Copies the model's whole state when the command's turn comes, then writes the copy to `dir` in
// the background. Answered by SnapshotDone.
struct Snapshot {
  std::string snapshot_id;
  std::string model_id;
  std::string dir;
  std::string manifest_json;
};

// Sets the model to its state in the snapshot in `dir`. Creates the model if it is new.
struct RestoreAdapter {
  std::string request_id;
  std::string model_id;
  std::string dir;
};

struct DropAdapter {
  std::string request_id;  // empty: no answer is sent
  std::string model_id;
};

// Applies the accumulated gradient. Refused unless (expected_applied_seq, window) matches the
// model's state.
struct OptimStep {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  int64_t expected_applied_seq = 0;
  std::vector<int64_t> window;  // seq_ids in the accumulator, ascending
  AdamParams adam;
};

// Drops the accumulator and its window (a failed forward_backward made the gradient incomplete).
struct ClearGradient {
  std::string model_id;
};

// kExternal: a PEFT folder for other programs, encrypted if there are recipients, and never loaded.
// kSnapshot: the model's whole state, including the open window, for RestoreAdapter.
enum class CheckpointKind { kTraining, kSampler, kExternal, kSnapshot };

struct SaveCheckpoint {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string dir;                          // final directory, chosen by the engine
  std::string manifest_json;                // owner, names and term; copied into manifest.json
  std::vector<std::string> age_recipients;  // for kExternal: "age1…"; empty: plain files
};

// Makes a sampler version of the model's current weights. Each later publication replaces an
// inflight version. Samples that run under it continue with the new weights.
struct PublishVersion {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  std::string version_id;
  bool is_inflight = false;
};

// Address of a process that serves sampler versions from its memory.
struct VersionAddress {
  std::string address;  // HOST:PORT, numeric
  std::string token;    // a reader must present it
};

// Loads a sampler version from a checkpoint directory (training, sampler or snapshot kind), or from
// the memory of another process. Answered by VersionLoaded or VersionFailed, unless another
// LoadVersion or a DropVersion of it comes first.
struct LoadVersion {
  std::string version_id;
  std::string dir;
  // For an inflight version: seq_id of the publication that made these weights. Samples that run
  // under an earlier one continue with them. 0: the version is not inflight.
  int64_t inflight_seq_id = 0;
  std::optional<VersionAddress> source = std::nullopt;  // set: read from there, not `dir`
  int64_t source_seq_id = 0;                            // publication that the source serves
};

// Lets other processes read a version that this process has. Answered by VersionServed.
struct ServeVersion {
  std::string version_id;
  std::string reader;  // identifies the reader in the answer
  int64_t num_reads = 1;
};

// Writes a version that this process has as a sampler checkpoint. Answered by VersionSaved.
struct SaveVersion {
  std::string version_id;
  std::string dir;
  std::string manifest_json;
};

struct DropVersion {
  std::string version_id;
};

struct Cancel {
  std::string request_id;
};

// Reports the tokens of a sample from now on, beginning with those already sampled.
struct StreamSample {
  std::string request_id;
};

using Command =
    std::variant<TrainBatch, CreateAdapter, LoadAdapter, DropAdapter, OptimStep, ClearGradient,
                 SaveCheckpoint, PublishVersion, LoadVersion, DropVersion, SampleRequest, Cancel,
                 StreamSample, Snapshot, RestoreAdapter, SaveVersion, ServeVersion>;

// ---- reports, executor -> engine ---------------------------------------------------------------

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

// Tokens that one pass sampled for streamed samples. It answers no request: the result has all
// tokens.
struct SampleProgress {
  std::vector<SampledToken> tokens;
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
  int64_t token_budget = 0;     // tokens of one micro-batch
  int64_t kv_cache_tokens = 0;  // longest sequence (prompt and sampled) that can be sampled
  bool tied_embeddings = false;
};

}  // namespace lathe::worker
