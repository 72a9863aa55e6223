// Continuous batching: decides which sequences run and what the next pass computes. Sequences join
// and leave between passes. No torch work happens here.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "services/worker/ops/counters.h"
#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/sampling/start_order.h"

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

// Samples start in the order of StartOrder, while the limit on running samples allows. Prompts are
// computed in the same order, but only those whose samples can start: a request claims no more rows
// than are free. A prompt that has begun is completed even if others take its rows meanwhile. A
// pass computes the next token of every running sample, and a chunk of the waiting sequences.
//
// When the cache is full, it takes blocks first from idle prefixes, then from waiting sequences,
// then from the youngest sample. The preempted sample keeps its row. It is recomputed later, with
// the same result. Executor thread only. Requests belong to the caller, which removes them before
// it destroys them.
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

  void Add(ActiveRequest* request) { order_.Add(request); }

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
  enum class Added {
    kYes,
    kLater,   // another sequence of the pass computes blocks that this one can use
    kNoRoom,  // in the cache
  };

  void FillDecode(std::vector<SequenceRows>& pass);
  void FillPrefill(std::vector<SequenceRows>& pass);
  bool FillPreempted(std::vector<SequenceRows>& pass, int64_t& budget);
  void FillPrompts(std::vector<SequenceRows>& pass, int64_t budget, int64_t num_free);
  Added AddWaiting(SequenceRows rows, std::vector<SequenceRows>& pass, int64_t& budget);
  Added AddPrompt(ActiveRequest* request, std::vector<SequenceRows>& pass, int64_t& budget);
  void RecordLookUp(const SequenceRows& rows);
  bool BeginWithPrefix(SequenceRows& rows, const std::vector<SequenceRows>& pass);
  int64_t NumFreeRows() const;
  SequenceRows FirstWaiting() const;
  bool ReleaseWaiting(const KvSequence* except);
  bool MakeRoomFor(ActiveSample* sample);
  void Preempt(ActiveSample* sample);
  bool IsIdle() const { return running_.empty() && ready_.empty() && too_large_.empty(); }
  bool HasWaiting() const { return !preempted_.empty() || !order_.empty(); }

  KvCache& cache_;
  SamplingCounters& counters_;
  const Options options_;
  StartOrder order_;                     // requests with samples to start
  std::vector<ActiveRequest*> begun_;    // a part of the prompt is computed, oldest first
  std::vector<ActiveRequest*> ready_;    // the prompt is computed, oldest first
  std::deque<ActiveSample*> preempted_;  // youngest last
  std::vector<ActiveSample*> running_;   // in the order they started
  std::vector<ActiveRequest*> too_large_;
};

}  // namespace lathe::worker
