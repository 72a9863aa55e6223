// Which sequences run, and what the next pass computes. Continuous batching: sequences join and
// leave between passes. No torch work here.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// Rows of one sequence in a pass: tokens [begin, end) of a prompt (`sample` null), or of a prompt
// and what the sample generated. A running sample computes its last token, the others what the
// cache lacks.
struct SequenceRows {
  ActiveRequest* request = nullptr;
  ActiveSample* sample = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  bool is_running = false;

  int64_t num_rows() const { return end - begin; }
  int64_t length() const;  // of the whole sequence
  bool is_last() const { return end == length(); }
  int32_t token(int64_t position) const;
  KvSequence& kv() const { return sample == nullptr ? request->prompt_kv : sample->kv; }
};

// Sums since the start.
struct BatchCounters {
  int64_t preemptions = 0;        // samples whose blocks were taken
  int64_t looked_up_tokens = 0;   // of prompts
  int64_t prompt_hit_tokens = 0;  // of them that were in the cache
};

// Prompts wait in order of arrival; ready prompts start samples while there is place; a pass
// computes the next token of all running samples and, beside them, a chunk of what waits. When the
// cache is full, first the idle blocks are taken, then those of what waits, then those of the
// youngest sample: it is computed again later, with the same result.
// Executor thread only; requests belong to the caller, who removes them before they die.
class ContinuousBatch {
 public:
  struct Options {
    int64_t max_running_samples = 256;
    // Rows of what waits in one pass, over all sequences: while nobody runs, and beside those that
    // run, whom each row holds up.
    int64_t max_prefill_tokens = 2048;
    int64_t max_prefill_tokens_beside_decode = 2048;
  };

  ContinuousBatch(KvCache& cache, const Options& options) : cache_(cache), options_(options) {}

  void Add(ActiveRequest* request) { waiting_.push_back({request, nullptr}); }

  // The next pass, running samples first, its place in the cache taken. Empty when there is nothing
  // to compute before samples start.
  std::vector<SequenceRows> NextPass();

  // After these rows were computed: others find their blocks, a prompt may start samples, a sample
  // runs on.
  void Computed(const SequenceRows& rows);

  // Samples of ready prompts that begin to run now; each wants a token from next_logits.
  std::vector<ActiveSample*> StartSamples();

  // Requests the cache cannot hold even alone; the caller removes them.
  std::vector<ActiveRequest*> TakeTooLarge();

  void Finish(ActiveSample* sample);
  void Remove(ActiveRequest* request);

  const BatchCounters& counters() const { return counters_; }

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
  const Options options_;
  std::deque<Waiting> waiting_;
  std::deque<ActiveRequest*> ready_;    // prompt computed, samples left to start
  std::vector<ActiveSample*> running_;  // in the order they started
  std::vector<ActiveRequest*> too_large_;
  BatchCounters counters_;
};

}  // namespace lathe::worker
