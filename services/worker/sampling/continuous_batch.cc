#include "services/worker/sampling/continuous_batch.h"

#include <algorithm>
#include <utility>

namespace lathe::worker {
namespace {

constexpr int64_t kMaxPrefillsInARow = 4;

int64_t NumToStart(const ActiveRequest* request) {
  return request->request.num_samples - request->num_started;
}

}  // namespace

int64_t PrefillChunk::length() const {
  const auto generated = sample == nullptr ? 0 : static_cast<int64_t>(sample->tokens.size());
  return request->prompt_length() + generated;
}

int32_t PrefillChunk::token(int64_t position) const {
  const int64_t generated = position - request->prompt_length();
  return generated < 0 ? request->request.prompt[position] : sample->tokens[generated];
}

bool ContinuousBatch::PrefersPrefill() const {
  if (waiting_.empty()) return false;
  return running_.empty() || prefills_in_a_row_ < kMaxPrefillsInARow;
}

// Places that running samples and those of ready prompts take.
int64_t ContinuousBatch::NumClaimed() const {
  auto claimed = static_cast<int64_t>(running_.size());
  for (const ActiveRequest* request : ready_) claimed += NumToStart(request);
  return claimed;
}

std::vector<PrefillChunk> ContinuousBatch::FillPrefill() {
  std::vector<PrefillChunk> chunks;
  int64_t budget = options_.max_prefill_tokens;
  int64_t claimed = NumClaimed();
  while (!waiting_.empty() && budget > 0 && claimed < options_.max_running_samples) {
    const Waiting next = waiting_.front();
    PrefillChunk chunk{.request = next.request, .sample = next.sample, .begin = next.kv().length};
    chunk.end = std::min(chunk.length(), chunk.begin + budget);
    const int64_t num_tokens = chunk.end - chunk.begin;
    // One free block stays for each running sample, else it would be preempted at once.
    const int64_t usable = cache_.num_free_blocks() - static_cast<int64_t>(running_.size());
    if (KvCache::BlocksToExtend(next.kv(), num_tokens) > usable) break;
    cache_.Extend(next.kv(), num_tokens);
    chunks.push_back(chunk);
    budget -= num_tokens;
    claimed += next.sample == nullptr ? NumToStart(next.request) : 1;
    if (chunk.is_last()) waiting_.pop_front();
  }
  return chunks;
}

std::vector<PrefillChunk> ContinuousBatch::NextPrefill() {
  std::vector<PrefillChunk> chunks = FillPrefill();
  while (chunks.empty() && IsIdle() && !waiting_.empty()) {
    if (!ReleaseWaiting(waiting_.front().request)) {
      too_large_.push_back(waiting_.front().request);
      break;
    }
    chunks = FillPrefill();
  }
  prefills_in_a_row_ = chunks.empty() ? kMaxPrefillsInARow : prefills_in_a_row_ + 1;
  return chunks;
}

void ContinuousBatch::PrefillDone(const PrefillChunk& chunk) {
  if (chunk.sample == nullptr) {
    ready_.push_back(chunk.request);
  } else {
    running_.push_back(chunk.sample);
  }
}

std::vector<ActiveSample*> ContinuousBatch::StartSamples() {
  std::vector<ActiveSample*> started;
  while (!ready_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running_samples) {
    ActiveRequest* request = ready_.front();
    ActiveSample* sample = request->samples[request->num_started].get();
    const bool is_last = request->num_started + 1 == request->request.num_samples;
    if (is_last) {
      sample->kv = std::exchange(request->prompt_kv, KvSequence());
    } else if (!cache_.Fork(request->prompt_kv, sample->kv)) {
      if (!running_.empty()) break;
      if (ReleaseWaiting(request)) continue;
      ready_.pop_front();
      too_large_.push_back(request);
      break;
    }
    ++request->num_started;
    if (is_last) ready_.pop_front();
    running_.push_back(sample);
    started.push_back(sample);
  }
  return started;
}

std::vector<ActiveSample*> ContinuousBatch::NextDecode() {
  prefills_in_a_row_ = 0;
  std::vector<ActiveSample*> batch;
  // Preemption shortens running_ from behind, down to the sample in hand.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (MakeRoomFor(running_[i])) batch.push_back(running_[i]);
  }
  return batch;
}

bool ContinuousBatch::MakeRoomFor(ActiveSample* sample) {
  while (!cache_.Extend(sample->kv, 1)) {
    if (ReleaseWaiting(nullptr)) continue;
    ActiveSample* youngest = running_.back();
    if (running_.size() == 1) {
      running_.clear();
      too_large_.push_back(youngest->request);
      return false;
    }
    Preempt(youngest);
    if (youngest == sample) return false;
  }
  return true;
}

void ContinuousBatch::Preempt(ActiveSample* sample) {
  ++num_preemptions_;
  running_.pop_back();
  cache_.Release(sample->kv);
  waiting_.push_front({sample->request, sample});
}

// Takes the blocks of one that waits, the last first; a ready prompt goes back to waiting.
bool ContinuousBatch::ReleaseWaiting(const ActiveRequest* except) {
  for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend(); ++waiting) {
    if (waiting->request == except || waiting->kv().blocks.empty()) continue;
    cache_.Release(waiting->kv());
    return true;
  }
  for (auto request = ready_.rbegin(); request != ready_.rend(); ++request) {
    if (*request == except) continue;
    cache_.Release((*request)->prompt_kv);
    waiting_.push_front({*request, nullptr});
    ready_.erase(std::next(request).base());
    return true;
  }
  return false;
}

std::vector<ActiveRequest*> ContinuousBatch::TakeTooLarge() {
  return std::exchange(too_large_, {});
}

void ContinuousBatch::Finish(ActiveSample* sample) {
  cache_.Release(sample->kv);
  std::erase(running_, sample);
}

void ContinuousBatch::Remove(ActiveRequest* request) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.request == request; });
  std::erase(ready_, request);
  std::erase(too_large_, request);
  std::erase_if(running_, [&](const ActiveSample* sample) { return sample->request == request; });
  cache_.Release(request->prompt_kv);
  for (const auto& sample : request->samples) cache_.Release(sample->kv);
}

}  // namespace lathe::worker
