// Which sequences run, and what the next pass computes. Continuous batching: sequences join and
// leave between passes. No torch work here.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "services/worker/sampling/active_request.h"
#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// Rows of one prefill pass: tokens [begin, end) of a prompt (`sample` null), or of a prompt and
// what the sample generated before its blocks were taken.
struct PrefillChunk {
  ActiveRequest* request = nullptr;
  ActiveSample* sample = nullptr;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const;  // of the whole sequence
  bool is_last() const { return end == length(); }
  int32_t token(int64_t position) const;
  KvSequence& kv() const { return sample == nullptr ? request->prompt_kv : sample->kv; }
};

// Prompts wait in order of arrival; ready prompts start samples while there is place; running
// samples decode together. When the cache is full, first the blocks of what waits are taken, then
// those of the youngest sample: it is computed again later, with the same result.
// Executor thread only; requests belong to the caller, who removes them before they die.
class ContinuousBatch {
 public:
  struct Options {
    int64_t max_running_samples = 256;
    int64_t max_prefill_tokens = 2048;  // per pass, over all prompts
  };

  ContinuousBatch(KvCache& cache, const Options& options) : cache_(cache), options_(options) {}

  void Add(ActiveRequest* request) { waiting_.push_back({request, nullptr}); }

  // Whether NextPrefill comes before NextDecode now: new sequences join early, but those that run
  // wait for a few passes at most.
  bool PrefersPrefill() const;

  // The next prefill pass, its place in the cache taken. Empty when nothing fits now.
  std::vector<PrefillChunk> NextPrefill();

  // After a chunk with is_last() was computed: a prompt may start samples, a sample runs on.
  void PrefillDone(const PrefillChunk& chunk);

  // Samples of ready prompts that begin to run now; each wants a token from next_logits.
  std::vector<ActiveSample*> StartSamples();

  // Samples of the next decode pass, place for one more token taken.
  std::vector<ActiveSample*> NextDecode();

  // Requests the cache cannot hold even alone; the caller removes them.
  std::vector<ActiveRequest*> TakeTooLarge();

  void Finish(ActiveSample* sample);
  void Remove(ActiveRequest* request);

  // Samples whose blocks were taken, since the start.
  int64_t num_preemptions() const { return num_preemptions_; }

 private:
  struct Waiting {
    ActiveRequest* request;
    ActiveSample* sample;
    KvSequence& kv() const { return sample == nullptr ? request->prompt_kv : sample->kv; }
  };

  std::vector<PrefillChunk> FillPrefill();
  int64_t NumClaimed() const;
  bool ReleaseWaiting(const ActiveRequest* except);
  bool MakeRoomFor(ActiveSample* sample);
  void Preempt(ActiveSample* sample);
  bool IsIdle() const { return running_.empty() && ready_.empty(); }

  KvCache& cache_;
  const Options options_;
  std::deque<Waiting> waiting_;
  std::deque<ActiveRequest*> ready_;    // prompt computed, samples left to start
  std::vector<ActiveSample*> running_;  // in the order they started
  std::vector<ActiveRequest*> too_large_;
  int64_t prefills_in_a_row_ = 0;
  int64_t num_preemptions_ = 0;
};

}  // namespace lathe::worker
