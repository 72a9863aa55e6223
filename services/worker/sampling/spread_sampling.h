// Sampling spread over the ranks of axis dp: each request is one replica's, and all ranks know what
// became of it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/sampling/sample_packing.h"
#include "services/worker/sampling/sampling_engine.h"

namespace lathe::worker {

// A replica's ranks are neighbours in `all`, and the first one speaks for it; they make the same
// calls, as all ranks do. A rank alone, or of one replica, is 0 of 1.
struct ReplicaPlace {
  int index = 0;
  int count = 1;
  RankGroup all;
};

// As SamplingEngine, for a rank of several replicas: the same calls on all ranks, in the same
// order, and the same comes of them, but for kv_usage of the moment. What a request gets does not
// depend on where it ran. RunPass runs one pass on each replica that has work; what a pass throws
// fails its requests. Throws RanksDisagree.
class SpreadSampling {
 public:
  SpreadSampling(const Model& model, const SamplingOptions& options, const Tokenizer* tokenizer,
                 const ReplicaPlace& place);

  absl::Status Add(SampleRequest request, std::shared_ptr<const AdapterWeights> adapter,
                   int64_t inflight_seq = 0);
  void MoveVersion(const std::string& version_id,
                   const std::shared_ptr<const AdapterWeights>& adapter, int64_t inflight_seq);
  void DropVersion(const std::string& version_id);
  void Cancel(const std::string& request_id);
  void Stream(const std::string& request_id);

  bool HasWork() const { return is_alone() ? engine_.HasWork() : !running_.empty(); }
  void RunPass();
  std::vector<FinishedSample> TakeFinished() { return std::exchange(news_.finished, {}); }
  std::vector<SampledToken> TakeStreamed() { return std::exchange(news_.streamed, {}); }

  // Of all replicas.
  SamplingCounters counters() const { return is_alone() ? engine_.counters() : counters_; }
  // Of all replicas, of the others as it was after the last pass.
  KvUsage kv_usage() const;
  // Of this rank's replica.
  KvUsage own_kv_usage() const;

 private:
  struct Running {
    int replica = 0;
    int64_t num_tokens = 0;                        // of prompt and samples, at most
    std::shared_ptr<const PromptTargets> targets;  // of the request
  };

  // Where requests that begin alike went last.
  class Affinity {
   public:
    // -1: nowhere that is known.
    int Find(uint64_t beginning) const;
    void Note(uint64_t beginning, int replica);

   private:
    absl::flat_hash_map<uint64_t, int> replicas_;
    std::deque<uint64_t> oldest_first_;
  };

  bool is_alone() const { return place_.count == 1; }
  int Choose(const SampleRequest& request);
  void Forget(const std::string& request_id);
  SampleNews RunOwnPass();
  void Exchange(SampleNews own);

  SamplingEngine engine_;
  const ReplicaPlace place_;
  const int64_t max_requests_;
  std::map<std::string, Running> running_;  // by request id
  std::vector<int64_t> tokens_of_replica_;
  Affinity affinity_;
  std::vector<FinishedSample> not_added_;  // of this replica, which could not take them
  SampleNews news_;
  SamplingCounters counters_;
  KvUsage others_kv_usage_;
};

}  // namespace lathe::worker
