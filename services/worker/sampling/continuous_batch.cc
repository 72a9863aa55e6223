#include "services/worker/sampling/continuous_batch.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "services/worker/sampling/prompt_scores.h"

namespace lathe::worker {
namespace {

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
  while (pass.empty() && IsIdle() && HasWaiting()) {
    const SequenceRows first = FirstWaiting();
    if (!ReleaseWaiting(&first.kv())) {
      too_large_.push_back(first.request);
      break;
    }
    FillPrefill(pass);
  }
  return pass;
}

// Returns the sequence that is to be computed first. There must be one.
SequenceRows ContinuousBatch::FirstWaiting() const {
  if (preempted_.empty()) return {.request = StartOrder::Walk(order_).Next()};
  return {.request = preempted_.front()->request, .sample = preempted_.front()};
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

// Returns the number of samples that can start. Preempted samples keep their rows.
int64_t ContinuousBatch::NumFreeRows() const {
  return options_.max_running_samples - static_cast<int64_t>(running_.size() + preempted_.size());
}

void ContinuousBatch::FillPrefill(std::vector<SequenceRows>& pass) {
  int64_t budget =
      running_.empty() ? options_.max_prefill_tokens : options_.max_prefill_tokens_beside_decode;
  const int64_t num_free = NumFreeRows();
  if (FillPreempted(pass, budget)) FillPrompts(pass, budget, num_free);
}

// Returns false if the cache has no room for a preempted sample. It has the next room.
bool ContinuousBatch::FillPreempted(std::vector<SequenceRows>& pass, int64_t& budget) {
  for (auto next = preempted_.begin(); next != preempted_.end() && budget > 0;) {
    const Added added = AddWaiting({.request = (*next)->request, .sample = *next}, pass, budget);
    if (added == Added::kNoRoom) return false;
    const bool is_complete = added == Added::kYes && pass.back().is_last();
    next = is_complete ? preempted_.erase(next) : std::next(next);
  }
  return true;
}

void ContinuousBatch::FillPrompts(std::vector<SequenceRows>& pass, int64_t budget,
                                  int64_t num_free) {
  std::set<const ActiveRequest*> seen;
  if (num_free > 0 && !order_.empty()) {
    StartOrder::Walk walk(order_);
    // Bounds the prompts that wait for blocks of others, because a look at a prompt costs time.
    int64_t most_looks = options_.max_running_samples;
    while (num_free > 0 && budget > 0 && most_looks > 0) {
      ActiveRequest* const request = walk.Next();
      if (request == nullptr) break;
      if (!request->is_ready && seen.insert(request).second) {
        --most_looks;
        const Added added = AddPrompt(request, pass, budget);
        if (added == Added::kNoRoom) break;
        if (added == Added::kLater) {
          walk.Skip();
          continue;
        }
      }
      walk.Take();
      --num_free;
    }
  }
  const std::vector<ActiveRequest*> begun = begun_;
  for (ActiveRequest* const request : begun) {
    if (budget == 0) return;
    if (seen.contains(request)) continue;
    if (AddPrompt(request, pass, budget) == Added::kNoRoom) return;
  }
}

// Adds the next chunk of a prompt.
ContinuousBatch::Added ContinuousBatch::AddPrompt(ActiveRequest* request,
                                                  std::vector<SequenceRows>& pass,
                                                  int64_t& budget) {
  const bool is_new = request->prompt_kv.blocks.empty();
  const Added added = AddWaiting({.request = request}, pass, budget);
  if (added != Added::kYes) return added;
  const bool is_complete = pass.back().is_last();
  if (is_new && !is_complete) begun_.push_back(request);
  if (!is_new && is_complete) std::erase(begun_, request);
  return added;
}

// Adds the next chunk of a waiting sequence, at most `budget` rows, which it takes off.
ContinuousBatch::Added ContinuousBatch::AddWaiting(SequenceRows rows,
                                                   std::vector<SequenceRows>& pass,
                                                   int64_t& budget) {
  KvSequence& kv = rows.kv();
  const bool is_new = kv.blocks.empty();
  if (is_new && !BeginWithPrefix(rows, pass)) return Added::kLater;
  rows.begin = kv.length;
  rows.end = std::min(rows.length(), rows.begin + budget);
  // A new sequence begins only if the cache has room for all of it. One free block per running
  // sample is kept back; otherwise running samples would take the new blocks at once.
  const int64_t num_wanted = (is_new ? rows.length() : rows.end) - rows.begin;
  const int64_t usable = cache_.num_free_blocks() - static_cast<int64_t>(running_.size());
  if (KvCache::BlocksToExtend(kv, num_wanted) > usable) {
    if (is_new) cache_.Release(kv);
    return Added::kNoRoom;
  }
  cache_.Extend(kv, rows.num_rows());
  RecordLookUp(rows);
  pass.push_back(rows);
  budget -= rows.num_rows();
  return Added::kYes;
}

// Counts the first look-up of a prompt in the prefix cache.
void ContinuousBatch::RecordLookUp(const SequenceRows& rows) {
  ActiveRequest& request = *rows.request;
  if (rows.sample != nullptr || std::exchange(request.is_looked_up, true)) return;
  request.output.prompt_cache_hit_tokens = rows.begin;
  if (request.scope.has_value()) counters_.looked_up_tokens += request.prompt_length();
  counters_.prompt_hit_tokens += rows.begin;
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
    rows.request->is_ready = true;
    ready_.push_back(rows.request);
  } else {
    running_.push_back(rows.sample);
  }
}

std::vector<ActiveSample*> ContinuousBatch::StartSamples() {
  std::vector<ActiveSample*> started;
  if (ready_.empty() || NumFreeRows() == 0) return started;
  StartOrder::Walk walk(order_);
  while (NumFreeRows() > 0 && !ready_.empty()) {
    ActiveRequest* const request = walk.Next();
    if (request == nullptr) break;
    if (!request->is_ready) {
      walk.Skip();
      continue;
    }
    ActiveSample* const sample = request->samples[request->num_started].get();
    bool takes_prompt = request->num_started + 1 == request->request.num_samples;
    if (!takes_prompt && !cache_.Fork(request->prompt_kv, sample->kv)) {
      if (!running_.empty()) break;
      if (ReleaseWaiting(&request->prompt_kv)) continue;
      // No block is free for a copy, although no other sequence holds any. The sample takes the
      // prompt's blocks, and the prompt is computed again for the remaining samples.
      takes_prompt = true;
    }
    if (takes_prompt) {
      sample->kv = std::exchange(request->prompt_kv, KvSequence());
      request->is_ready = false;
      std::erase(ready_, request);
    }
    order_.Start(request);
    walk.Take();
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
  preempted_.push_front(sample);
}

// Releases the blocks of one sequence other than `except`: the prompt that began last, else the
// last preempted sample that has blocks, else the last ready prompt, which is then computed again.
// Returns false if there is none.
bool ContinuousBatch::ReleaseWaiting(const KvSequence* except) {
  const auto release_prompt = [&](std::vector<ActiveRequest*>& prompts) {
    const auto last = std::find_if(prompts.rbegin(), prompts.rend(), [&](ActiveRequest* request) {
      return &request->prompt_kv != except;
    });
    if (last == prompts.rend()) return false;
    cache_.Release((*last)->prompt_kv);
    (*last)->is_ready = false;
    prompts.erase(std::next(last).base());
    return true;
  };
  if (release_prompt(begun_)) return true;
  for (auto sample = preempted_.rbegin(); sample != preempted_.rend(); ++sample) {
    if (&(*sample)->kv == except || (*sample)->kv.blocks.empty()) continue;
    cache_.Release((*sample)->kv);
    return true;
  }
  return release_prompt(ready_);
}

std::vector<ActiveRequest*> ContinuousBatch::TakeTooLarge() {
  return std::exchange(too_large_, {});
}

void ContinuousBatch::Finish(ActiveSample* sample) {
  cache_.Release(sample->kv);
  std::erase(running_, sample);
  order_.End(sample->request);
}

void ContinuousBatch::Remove(ActiveRequest* request) {
  const auto is_its = [&](const ActiveSample* sample) { return sample->request == request; };
  std::erase(begun_, request);
  std::erase(ready_, request);
  std::erase(too_large_, request);
  std::erase_if(preempted_, is_its);
  std::erase_if(running_, is_its);
  order_.Remove(request);
  cache_.Release(request->prompt_kv);
  for (const auto& sample : request->samples) cache_.Release(sample->kv);
}

}  // namespace lathe::worker
