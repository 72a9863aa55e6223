// Continuous batching: decides which sequences run and what the next pass computes. Sequences join
// and leave between passes. No torch work happens here.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "services/worker/ops/counters.h"
#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/cache/kv_cache.h"

namespace lathe::worker {

// Rows [begin, end) of one sequence in a pass. Without `sample` the sequence is the prompt, else
// the prompt and the sample's tokens. A running sample computes its last token. Other sequences
// compute the tokens that the cache lacks.
struct SequenceRows {
  ActiveRequest* request = nullptr;
  ActiveSample* sample = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  bool is_running = false;

  int64_t num_rows() const { return end - begin; }
  int64_t length() const;  // number of tokens of the whole sequence
  bool is_last() const { return end == length(); }
  int32_t token(int64_t position) const;
  KvSequence& kv() const { return sample == nullptr ? request->prompt_kv : sample->kv; }
};

// Prompts wait in order of arrival. Ready prompts start samples while the limit on running samples
// allows. A pass computes the next token of every running sample, and a chunk of the waiting
// sequences. When the cache is full, it takes blocks first from idle prefixes, then from waiting
// sequences, then from the youngest sample. The preempted sample is recomputed later, with the same
// result. Executor thread only. Requests belong to the caller, which removes them before it
// destroys them.
class ContinuousBatch {
 public:
  struct Options {
    int64_t max_running_samples = 256;
    // Maximum rows of waiting sequences per pass, over all of them: while no sample runs, and while
    // some do. Each row delays the running samples.
    int64_t max_prefill_tokens = 2048;
    int64_t max_prefill_tokens_beside_decode = 2048;
  };

  // Counts preemptions and uses of the prefix cache in `counters`. Both references must outlive
  // this.
  ContinuousBatch(KvCache& cache, SamplingCounters& counters, const Options& options)
      : cache_(cache), counters_(counters), options_(options) {}

  void Add(ActiveRequest* request) { waiting_.push_back({request, nullptr}); }

  // Returns the rows of the next pass, running samples first, with cache space already reserved.
  // Empty if samples must start before there is anything to compute.
  std::vector<SequenceRows> NextPass();

  // Records that these rows were computed: other sequences can find their blocks. A complete prompt
  // may then start samples, and a complete sample continues to run.
  void Computed(const SequenceRows& rows);

  // Returns samples of ready prompts that start now. Each needs a token drawn from next_logits.
  std::vector<ActiveSample*> StartSamples();

  // Returns requests that do not fit in the cache even alone. The caller removes them.
  std::vector<ActiveRequest*> TakeTooLarge();

  void Finish(ActiveSample* sample);
  void Remove(ActiveRequest* request);

 private:
  struct Waiting {
    ActiveRequest* request;
    ActiveSample* sample;
    KvSequence& kv() const { return sample == nullptr ? request->prompt_kv : sample->kv; }
  };

  void FillDecode(std::vector<SequenceRows>& pass);
  void FillPrefill(std::vector<SequenceRows>& pass);
  bool BeginWithPrefix(SequenceRows& rows, const std::vector<SequenceRows>& pass);
  int64_t NumClaimed() const;
  bool ReleaseWaiting(const KvSequence* except);
  bool MakeRoomFor(ActiveSample* sample);
  void Preempt(ActiveSample* sample);
  bool IsIdle() const { return running_.empty() && ready_.empty() && too_large_.empty(); }

  KvCache& cache_;
  SamplingCounters& counters_;
  const Options options_;
  std::deque<Waiting> waiting_;
  std::deque<ActiveRequest*> ready_;    // prompt computed, some samples not started
  std::vector<ActiveSample*> running_;  // in the order they started
  std::vector<ActiveRequest*> too_large_;
};

}  // namespace lathe::worker
