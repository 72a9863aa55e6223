#include "services/engine/ledger/gradient_window.h"

#include <algorithm>
#include <charconv>

namespace lathe::engine {

void GradientWindow::Add(int64_t seq, int64_t accepted_at, int64_t bytes) {
  if (seq > from_seq_) successes_[seq] = {accepted_at, bytes};
}

void GradientWindow::AddFailure(int64_t seq, int64_t delivered_at, int64_t bytes) {
  if (seq > from_seq_) failures_[seq] = {delivered_at, bytes};
}

void GradientWindow::MarkDelivered(int64_t seq, int64_t delivered_at) {
  const auto it = failures_.find(seq);
  if (it == failures_.end() || it->second.delivered_at > 0) return;
  it->second.delivered_at = delivered_at;
}

void GradientWindow::Apply(int64_t seq) {
  applied_seq_ = seq;
  Clear(seq);
}

void GradientWindow::Clear(int64_t seq) {
  from_seq_ = seq;
  successes_.clear();
  dropped_.clear();
  // A failure above `seq` belongs to the next gradient. It may be known early if the request was
  // invalid at submission.
  failures_.erase(failures_.begin(), failures_.upper_bound(seq));
}

void GradientWindow::Drop() {
  if (empty()) return;
  const std::vector<int64_t> held = seqs();
  std::vector<int64_t> dropped = std::move(dropped_);
  dropped.insert(dropped.end(), held.begin(), held.end());
  Clear(held.back());
  dropped_ = std::move(dropped);
}

void GradientWindow::Replace(int64_t seq, const std::vector<int64_t>& held) {
  if (held.empty()) return Clear(seq);
  std::map<int64_t, Success> before;
  before.swap(successes_);
  for (const int64_t one : held) successes_[one] = before[one];
}

std::optional<int64_t> GradientWindow::SpoilingFailure(int64_t step_seq,
                                                       int64_t accepted_at) const {
  int64_t earliest = accepted_at;
  int64_t largest = 0;
  for (const auto& [seq, success] : successes_) {
    earliest = std::min(earliest, success.accepted_at);
    largest = std::max(largest, success.bytes);
  }
  for (const auto& [seq, failure] : failures_) {
    if (seq > step_seq) break;
    const bool was_known = failure.delivered_at > 0 && failure.delivered_at <= earliest;
    const bool is_first = empty() || seq < successes_.begin()->first;
    const bool may_continue = !empty() && failure.bytes + largest > kSplitBatchBytes;
    if (!was_known || !is_first || may_continue) return seq;
  }
  return std::nullopt;
}

std::vector<int64_t> GradientWindow::seqs() const {
  std::vector<int64_t> seqs;
  seqs.reserve(successes_.size());
  for (const auto& [seq, success] : successes_) seqs.push_back(seq);
  return seqs;
}

std::string EncodeSeqs(const std::vector<int64_t>& seqs) {
  std::string text;
  for (const int64_t seq : seqs) {
    if (!text.empty()) text += ',';
    text += std::to_string(seq);
  }
  return text;
}

std::vector<int64_t> DecodeSeqs(const std::string& text) {
  std::vector<int64_t> seqs;
  const char* position = text.data();
  const char* const end = position + text.size();
  while (position < end) {
    int64_t seq = 0;
    const auto [next, error] = std::from_chars(position, end, seq);
    if (error != std::errc()) break;
    seqs.push_back(seq);
    position = next + 1;
  }
  return seqs;
}

}  // namespace lathe::engine
