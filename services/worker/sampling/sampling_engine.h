// Samples from the base model and its adapters: requests in, passes over the model, outputs out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/aten.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/continuous_batch.h"
#include "services/worker/sampling/decode_graphs.h"
#include "services/worker/sampling/kv_cache.h"
#include "services/worker/tokenizer/tokenizer.h"

namespace lathe::worker {

struct SamplingOptions {
  // Keys and values of all sequences. More: more samples run together. On a CPU it becomes resident
  // only as it is used.
  int64_t kv_cache_bytes = int64_t{1} << 30;
  // Samples that decode together; more wait. More: larger passes, so longer ones.
  int64_t max_running_samples = 256;
  // Prompt rows of one pass; longer prompts take several. More: fewer passes, longer stalls. While
  // nobody decodes, and beside those who do.
  int64_t max_prefill_tokens = 2048;
  int64_t max_prefill_tokens_beside_decode = 2048;
  // Whether requests of one tenant under the same weights find keys and values of each other's
  // tokens again.
  bool prefix_cache = true;
  // Whether decode passes on a GPU are recorded once per number of rows and replayed. Off: less
  // memory, and some hundred launches a pass.
  bool decode_graphs = true;
  // Requests held, waiting or running.
  int64_t max_requests = 16384;
  // Numbers in one chunk of prompt logits (4 bytes each).
  int64_t head_chunk_elements = int64_t{1} << 24;
};

// Sums since the start.
struct SamplingCounters {
  int64_t prefill_passes = 0;  // with rows of a prompt, or of a sample that is computed again
  int64_t prefill_tokens = 0;
  int64_t decode_passes = 0;  // with a row of every running sample
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t looked_up_tokens = 0;   // of prompts
  int64_t prompt_hit_tokens = 0;  // of them that needed no computing
  int64_t kv_evictions = 0;       // blocks taken from the prefix cache
};

struct FinishedSample {
  std::string request_id;
  absl::StatusOr<SampleOutput> output;
};

// Requests of all adapters share passes. What a request gets depends on its seed, not on its
// neighbours (up to the rounding of the matrix products).
// Used by the executor thread only; `model` and `tokenizer` must outlive it.
class SamplingEngine {
 public:
  // `tokenizer` may be null; then stop strings are refused.
  SamplingEngine(const Model& model, const SamplingOptions& options, const Tokenizer* tokenizer);

  // Whether Add takes it. ResourceExhausted: too many requests, or a prompt larger than the whole
  // cache. InvalidArgument: stop strings without a tokenizer. AlreadyExists: the id is running.
  absl::Status Check(const SampleRequest& request) const;

  // `adapter` null is the base model. The request was validated against the model's limits. Errors
  // as Check.
  // `inflight_seq`: of an inflight version, whose tokens say so; 0: the weights stay.
  absl::Status Add(SampleRequest request, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq = 0);

  // Requests of `version_id` go on with these weights. Keys and values that are there stay, so what
  // they still generate depends on when this came; nobody else finds them.
  void MoveVersion(const std::string& version_id, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq);

  // The keys and values of this version's tokens are not found again.
  void DropVersion(const std::string& version_id);

  // Forgets the request; nothing is reported. Unknown ids are ignored.
  void Cancel(const std::string& request_id);

  // TakeStreamed gives the request's tokens from now on, from the first one. Unknown ids are
  // ignored.
  void Stream(const std::string& request_id);

  bool HasWork() const { return !requests_.empty() || !finished_.empty(); }

  // One pass: the next token of every running sample, and a chunk of prompts. When it throws, call
  // AbandonPass before the next one.
  void RunPass();

  // Fails the requests that took part in the pass that threw; the others go on.
  void AbandonPass(const absl::Status& status);

  // In the order they finished, since the last call.
  std::vector<FinishedSample> TakeFinished();

  // Tokens of streamed requests that were not given yet, those of a sample in their order; of each
  // request at most kMaxStreamedTokens, so that a long one that is streamed anew holds nobody up.
  // One that has finished may lack some, which its output has.
  std::vector<SampledToken> TakeStreamed();
  static constexpr int64_t kMaxStreamedTokens = 2048;  // more than a pass draws for one request

  SamplingCounters counters() const;
  KvUsage kv_usage() const;

 private:
  // Samples that draw a token at the end of this pass.
  struct PendingDraws {
    std::vector<ActiveSample*> samples;
    std::vector<at::Tensor> logits;  // [n, V] each, together one row per sample

    void Add(ActiveSample* sample, const at::Tensor& row) {
      samples.push_back(sample);
      logits.push_back(row.unsqueeze(0));
    }
  };

  void Compute(std::vector<SequenceRows> pass, PendingDraws& draws);
  at::Tensor LastLogits(const std::vector<SequenceRows>& pass);
  at::Tensor LastLogitsByGraph(const std::vector<SequenceRows>& pass);
  void NoteRows(const std::vector<SequenceRows>& pass);
  void ScoreRows(const std::vector<SequenceRows>& pass, const at::Tensor& x);
  void StartSamples(PendingDraws& draws);
  void DrawAll(const PendingDraws& draws);
  void Accept(ActiveSample* sample, int32_t token, float logprob);
  void Report(const ActiveRequest& request);
  int64_t Report(ActiveSample& sample, int64_t most);
  void Complete(ActiveRequest* request);
  void Fail(ActiveRequest* request, const absl::Status& status);
  void FailTooLarge();
  std::optional<PrefixScope> ScopeOf(const ActiveRequest& active) const;

  const Model& model_;
  const SamplingOptions options_;
  const Tokenizer* tokenizer_;
  KvCache cache_;
  std::unique_ptr<DecodeGraphs> graphs_;  // null: no pass is recorded
  ContinuousBatch batch_;
  std::map<std::string, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::string> in_pass_;  // request ids
  std::vector<FinishedSample> finished_;
  std::set<std::string> streams_;  // ids of streamed requests; some may be gone
  std::vector<SampledToken> streamed_;
  SamplingCounters counters_;
};

}  // namespace lathe::worker
