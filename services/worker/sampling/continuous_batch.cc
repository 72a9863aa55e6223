#include "services/worker/sampling/continuous_batch.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "services/worker/sampling/prompt_scores.h"

namespace lathe::worker {
namespace {

int64_t NumToStart(const ActiveRequest* request) {
  return request->request.num_samples - request->num_started;
}

std::vector<int32_t> TokensOf(const SequenceRows& rows, int64_t begin, int64_t end) {
  std::vector<int32_t> tokens;
  tokens.reserve(end - begin);
  for (int64_t position = begin; position < end; ++position) tokens.push_back(rows.token(position));
  return tokens;
}

// Returns the number of leading tokens that need no computing if their keys and values are cached.
// The last token is always computed, for its logits, and so are the scored rows of a prompt.
int64_t NumReusable(const SequenceRows& rows) {
  return rows.sample == nullptr ? FirstScoredRow(rows.request->request) : rows.length() - 1;
}

// Returns true if `other`, a sequence of the pass under construction, computes the block of
// `tokens` that follows the blocks `found`.
bool ComputesNext(const SequenceRows& other, const PrefixScope& scope,
                  const std::vector<int32_t>& found, std::span<const int32_t> tokens) {
  const KvSequence& kv = other.kv();
  const auto num_found = static_cast<int64_t>(found.size());
  const int64_t begin = num_found * KvCache::kBlockTokens;
  const int64_t end = begin + KvCache::kBlockTokens;
  if (other.end < end || other.request->scope != scope) return false;
  // Equal last blocks imply equal earlier blocks, because a shared block identifies its prefix.
  if (num_found > 0 && (kv.num_shareable < num_found || kv.blocks[num_found - 1] != found.back())) {
    return false;
  }
  return std::ranges::equal(TokensOf(other, begin, end), tokens.subspan(begin, end - begin));
}

}  // namespace

int64_t SequenceRows::length() const {
  const auto generated = sample == nullptr ? 0 : static_cast<int64_t>(sample->tokens.size());
  return request->prompt_length() + generated;
}

int32_t SequenceRows::token(int64_t position) const {
  const int64_t generated = position - request->prompt_length();
  return generated < 0 ? request->request.prompt[position] : sample->tokens[generated];
}

std::vector<SequenceRows> ContinuousBatch::NextPass() {
  std::vector<SequenceRows> pass;
  FillDecode(pass);
  FillPrefill(pass);
  while (pass.empty() && IsIdle() && !waiting_.empty()) {
    if (!ReleaseWaiting(&waiting_.front().kv())) {
      too_large_.push_back(waiting_.front().request);
      break;
    }
    FillPrefill(pass);
  }
  return pass;
}

void ContinuousBatch::FillDecode(std::vector<SequenceRows>& pass) {
  // Preemption removes samples from the end of running_, at most down to `sample` itself.
  for (size_t i = 0; i < running_.size(); ++i) {
    ActiveSample* const sample = running_[i];
    if (!MakeRoomFor(sample)) continue;
    pass.push_back({.request = sample->request,
                    .sample = sample,
                    .begin = sample->kv.length - 1,
                    .end = sample->kv.length,
                    .is_running = true});
  }
}

// Returns the number of running samples plus those that ready prompts have yet to start.
int64_t ContinuousBatch::NumClaimed() const {
  auto claimed = static_cast<int64_t>(running_.size());
  for (const ActiveRequest* request : ready_) claimed += NumToStart(request);
  return claimed;
}

void ContinuousBatch::FillPrefill(std::vector<SequenceRows>& pass) {
  int64_t budget =
      running_.empty() ? options_.max_prefill_tokens : options_.max_prefill_tokens_beside_decode;
  int64_t claimed = NumClaimed();
  int64_t num_seen = 0;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (budget == 0 || claimed >= options_.max_running_samples) return;
    if (++num_seen > options_.max_running_samples) return;
    SequenceRows rows{.request = next->request, .sample = next->sample};
    KvSequence& kv = rows.kv();
    const bool is_new = kv.blocks.empty();
    if (is_new && !BeginWithPrefix(rows, pass)) {
      ++next;
      continue;
    }
    rows.begin = kv.length;
    rows.end = std::min(rows.length(), rows.begin + budget);
    // A new sequence begins only if the cache has room for all of it. One free block per running
    // sample is kept back; otherwise running samples would take the new blocks at once.
    const int64_t num_wanted = (is_new ? rows.length() : rows.end) - rows.begin;
    const int64_t usable = cache_.num_free_blocks() - static_cast<int64_t>(running_.size());
    if (KvCache::BlocksToExtend(kv, num_wanted) > usable) {
      if (is_new) cache_.Release(kv);
      return;
    }
    cache_.Extend(kv, rows.num_rows());
    if (rows.sample == nullptr && !rows.request->is_looked_up) {
      rows.request->is_looked_up = true;
      rows.request->output.prompt_cache_hit_tokens = rows.begin;
      if (rows.request->scope.has_value()) {
        counters_.looked_up_tokens += rows.request->prompt_length();
      }
      counters_.prompt_hit_tokens += rows.begin;
    }
    pass.push_back(rows);
    budget -= rows.num_rows();
    claimed += rows.sample == nullptr ? NumToStart(rows.request) : 1;
    next = rows.is_last() ? waiting_.erase(next) : std::next(next);
  }
}

// Makes an empty sequence start with the blocks that the prefix cache has for it. Returns false,
// without any change, if another sequence in `pass` computes the next block; the sequence then
// waits for it.
bool ContinuousBatch::BeginWithPrefix(SequenceRows& rows, const std::vector<SequenceRows>& pass) {
  if (!rows.request->scope.has_value()) return true;
  const PrefixScope& scope = *rows.request->scope;
  const std::vector<int32_t> tokens = TokensOf(rows, 0, NumReusable(rows));
  const std::vector<int32_t> found = cache_.FindPrefix(scope, tokens);
  const auto num_whole = static_cast<int64_t>(tokens.size()) / KvCache::kBlockTokens;
  const bool has_more = static_cast<int64_t>(found.size()) < num_whole;
  if (has_more && std::ranges::any_of(pass, [&](const SequenceRows& other) {
        return ComputesNext(other, scope, found, tokens);
      })) {
    return false;
  }
  cache_.BeginWith(found, rows.kv());
  return true;
}

void ContinuousBatch::Computed(const SequenceRows& rows) {
  KvSequence& kv = rows.kv();
  const int64_t begin = kv.num_shareable * KvCache::kBlockTokens;
  const int64_t end = kv.length / KvCache::kBlockTokens * KvCache::kBlockTokens;
  if (rows.request->scope.has_value() && begin < end) {
    cache_.Share(*rows.request->scope, TokensOf(rows, begin, end), kv);
  }
  if (rows.is_running || !rows.is_last()) return;
  if (rows.sample == nullptr) {
    ready_.push_back(rows.request);
  } else {
    running_.push_back(rows.sample);
  }
}

std::vector<ActiveSample*> ContinuousBatch::StartSamples() {
  std::vector<ActiveSample*> started;
  while (!ready_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running_samples) {
    ActiveRequest* request = ready_.front();
    ActiveSample* sample = request->samples[request->num_started].get();
    bool takes_prompt = request->num_started + 1 == request->request.num_samples;
    if (takes_prompt) {
      sample->kv = std::exchange(request->prompt_kv, KvSequence());
    } else if (!cache_.Fork(request->prompt_kv, sample->kv)) {
      if (!running_.empty()) break;
      if (ReleaseWaiting(&request->prompt_kv)) continue;
      // No block is free for a copy, although no other sequence holds any. The sample takes the
      // prompt's blocks, and the prompt is computed again for the remaining samples.
      sample->kv = std::exchange(request->prompt_kv, KvSequence());
      waiting_.push_front({request, nullptr});
      takes_prompt = true;
    }
    ++request->num_started;
    if (takes_prompt) ready_.pop_front();
    running_.push_back(sample);
    started.push_back(sample);
  }
  return started;
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
  ++counters_.preemptions;
  running_.pop_back();
  cache_.Release(sample->kv);
  waiting_.push_front({sample->request, sample});
}

// Releases the blocks of one sequence other than `except`: the last waiting one that has blocks, or
// else the last ready prompt, which then waits again. Returns false if there is none.
bool ContinuousBatch::ReleaseWaiting(const KvSequence* except) {
  for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend(); ++waiting) {
    if (&waiting->kv() == except || waiting->kv().blocks.empty()) continue;
    cache_.Release(waiting->kv());
    return true;
  }
  for (auto request = ready_.rbegin(); request != ready_.rend(); ++request) {
    if (&(*request)->prompt_kv == except) continue;
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
