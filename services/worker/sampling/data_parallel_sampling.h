// Data-parallel sampling: each request runs on one replica of axis dp, and every rank gets its
// result.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/ops/reports.h"
#include "services/worker/sampling/sampling_engine.h"

namespace lathe::worker {

// Results of one rank's passes.
struct SampleUpdates {
  std::vector<FinishedSample> finished;
  std::vector<SampledToken> streamed;
  std::vector<EndedSequences> ended;

  bool empty() const { return finished.empty() && streamed.empty() && ended.empty(); }
};

// Serializes `updates` for the other ranks. The `targets` of target_prompt_logprobs are left out:
// every rank has the request.
std::string Pack(const SampleUpdates& updates);

// Parses the bytes that Pack made. Internal error if they are damaged.
absl::StatusOr<SampleUpdates> UnpackSampleUpdates(std::string_view bytes);

// This rank's replica. The ranks of a replica are consecutive in `all` and make the same calls. Its
// first rank reports for it. With a single replica, `index` is 0 and `count` 1.
struct ReplicaPlace {
  int index = 0;
  int count = 1;
  RankGroup all;
};

// SamplingEngine over several replicas. All ranks make the same calls in the same order and get the
// same results, except for the momentary kv_usage. A request's output does not depend on its
// replica. RunPass runs one pass on each replica that has work; an exception in a pass fails that
// pass's requests. Throws RanksDisagree.
class DataParallelSampling {
 public:
  DataParallelSampling(const Model& model, const SamplingOptions& options,
                       const Tokenizer* tokenizer, const ReplicaPlace& place);

  absl::Status Add(SampleRequest request, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq = 0);
  void MoveVersion(const std::string& version_id,
                   const std::shared_ptr<const AdapterWeights>& adapter, int64_t inflight_seq);
  void DropVersion(const std::string& version_id);
  void Cancel(const std::string& request_id);
  void Stream(const std::string& request_id);

  bool HasWork() const { return is_alone() ? engine_.HasWork() : !running_.empty(); }
  void RunPass();
  std::vector<FinishedSample> TakeFinished() { return std::exchange(updates_.finished, {}); }
  std::vector<SampledToken> TakeStreamed() { return std::exchange(updates_.streamed, {}); }
  std::vector<EndedSequences> TakeEnded() { return std::exchange(updates_.ended, {}); }

  // Sums over all replicas.
  SamplingCounters counters() const { return is_alone() ? engine_.counters() : counters_; }
  // Usage over all replicas; the other replicas' part is that after the last pass.
  KvUsage kv_usage() const;
  // Usage of this rank's replica.
  KvUsage own_kv_usage() const;

 private:
  struct Running {
    int replica = 0;
    int64_t num_tokens = 0;                        // upper bound: prompt and samples
    std::shared_ptr<const PromptTargets> targets;  // the request's
  };

  // Remembers the replica that last got requests with the same beginning.
  class Affinity {
   public:
    // Returns the replica, or -1 if none is known.
    int Find(uint64_t beginning) const;
    void Record(uint64_t beginning, int replica);

   private:
    absl::flat_hash_map<uint64_t, int> replicas_;
    std::deque<uint64_t> oldest_first_;
  };

  bool is_alone() const { return place_.count == 1; }
  int Choose(const SampleRequest& request);
  void Forget(const std::string& request_id);
  SampleUpdates RunOwnPass();
  void Exchange(SampleUpdates own);

  SamplingEngine engine_;
  const ReplicaPlace place_;
  const int64_t max_requests_;
  std::map<std::string, Running> running_;  // by request id
  std::vector<int64_t> tokens_of_replica_;
  Affinity affinity_;
  std::vector<FinishedSample> not_added_;  // failures of this replica's Add
  SampleUpdates updates_;
  SamplingCounters counters_;
  KvUsage others_kv_usage_;
};

}  // namespace lathe::worker
