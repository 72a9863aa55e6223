// Samples from the base model and its adapters: requests in, model passes, outputs out.
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
#include "services/worker/models/model.h"
#include "services/worker/ops/counters.h"
#include "services/worker/ops/reports.h"
#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/attention/decode_graphs.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/sampling/continuous_batch.h"
#include "services/worker/tokenizer/tokenizer.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct SamplingOptions {
  // Bytes for keys and values of all sequences. A larger value lets more samples run together. On a
  // CPU the memory becomes resident only as it is used.
  int64_t kv_cache_bytes = int64_t{1} << 30;
  // Maximum samples that decode together; more wait. A larger value makes passes larger and longer.
  int64_t max_running_samples = 256;
  // Maximum prompt rows of one pass: while no sample decodes, and while some do. Longer prompts
  // take several passes. A larger value means fewer passes but longer stalls.
  int64_t max_prefill_tokens = 2048;
  int64_t max_prefill_tokens_beside_decode = 2048;
  // True if requests of one tenant under the same weights reuse each other's keys and values.
  bool prefix_cache = true;
  // True if decode passes on a GPU are recorded as CUDA graphs, one per number of rows. False saves
  // memory but costs some hundred launches a pass.
  bool decode_graphs = true;
  // Maximum number of requests, waiting or running.
  int64_t max_requests = 16384;
  // Numbers in one chunk of prompt logits, 4 bytes each.
  int64_t head_chunk_elements = int64_t{1} << 24;
};

struct FinishedSample {
  std::string request_id;
  absl::StatusOr<SampleOutput> output;
};

// Runs requests of all adapters in shared passes. A request's output depends on its seed, not on
// the other requests (up to rounding of the matrix products).
// Executor thread only; `model` and `tokenizer` must outlive this object.
class SamplingEngine {
 public:
  // `tokenizer` may be null; then requests with stop strings are rejected.
  SamplingEngine(const Model& model, const SamplingOptions& options, const Tokenizer* tokenizer);

  // Returns OK if Add would accept `request`. ResourceExhausted: too many requests, or a prompt
  // larger than the whole cache. InvalidArgument: stop strings without a tokenizer. AlreadyExists:
  // the id is running.
  absl::Status Check(const SampleRequest& request) const;

  // Adds a request that was validated against the model's limits. A null `adapter` is the base
  // model. Errors are those of Check. `inflight_seq` is the publication of an in-flight version,
  // which the output reports per token; 0: the weights never change.
  absl::Status Add(SampleRequest request, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq = 0);

  // Switches the requests of `version_id` to these weights. Cached keys and values stay, so later
  // tokens depend on the time of this call. Other requests cannot find these blocks.
  void MoveVersion(const std::string& version_id, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq);

  // Removes this version's keys and values from the prefix cache.
  void DropVersion(const std::string& version_id);

  // Drops the request without reporting a result. Unknown ids are ignored.
  void Cancel(const std::string& request_id);

  // Makes TakeStreamed return the request's tokens, starting with its first. Unknown ids are
  // ignored.
  void Stream(const std::string& request_id);

  bool HasWork() const { return !requests_.empty() || !finished_.empty(); }

  // Runs one pass: the next token of every running sample, and a chunk of prompts. If it throws,
  // call AbandonPass before the next pass.
  void RunPass();

  // Fails the requests that took part in the pass that threw. The others continue.
  void AbandonPass(const absl::Status& status);

  // Returns the requests finished since the last call, in order of completion.
  std::vector<FinishedSample> TakeFinished();

  // Returns tokens of streamed requests not returned before; those of one sample are in order. A
  // call returns at most kMaxStreamedTokens per request, so a long output that a new stream repeats
  // delays no other request. Tokens missing when a request finishes are in its output.
  std::vector<SampledToken> TakeStreamed();
  static constexpr int64_t kMaxStreamedTokens = 2048;  // more than a pass draws for one request

  // Returns the running requests of which a sequence has ended since the last call.
  std::vector<EndedSequences> TakeEnded();

  SamplingCounters counters() const;
  KvUsage kv_usage() const;

 private:
  // Samples that draw a token at the end of this pass.
  struct PendingSamples {
    std::vector<ActiveSample*> samples;
    std::vector<at::Tensor> logits;  // [n, V] each; together one row per sample

    void Add(ActiveSample* sample, const at::Tensor& row) {
      samples.push_back(sample);
      logits.push_back(row.unsqueeze(0));
    }
  };

  // Returns the requests whose prompts are complete now.
  std::vector<ActiveRequest*> Compute(std::vector<SequenceRows> pass, PendingSamples& inputs);
  at::Tensor LastLogits(const std::vector<SequenceRows>& pass);
  at::Tensor LastLogitsByGraph(const std::vector<SequenceRows>& pass);
  void RecordRows(const std::vector<SequenceRows>& pass);
  void ScoreRows(const std::vector<SequenceRows>& pass, const at::Tensor& x);
  void StartSamples(PendingSamples& inputs);
  void SampleAll(const PendingSamples& inputs);
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
  std::unique_ptr<DecodeGraphs> graphs_;  // null: no CUDA graphs
  SamplingCounters counters_;             // without the evictions, which the cache counts
  ContinuousBatch batch_;
  std::map<std::string, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::string> in_pass_;  // request ids
  std::vector<FinishedSample> finished_;
  std::set<std::string> ended_;    // ids of the requests that TakeEnded returns; some may be over
  std::set<std::string> streams_;  // ids of streamed requests; some may have ended
  std::vector<SampledToken> streamed_;
};

}  // namespace lathe::worker
