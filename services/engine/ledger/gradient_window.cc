#include "services/engine/ledger/gradient_window.h"

#include <charconv>

namespace lathe::engine {

void GradientWindow::Add(int64_t seq) {
  if (seq > from_seq_) seqs_.insert(seq);
}

void GradientWindow::AddFailure(int64_t seq, int64_t delivered_at) {
  if (seq > from_seq_) failures_[seq] = delivered_at;
}

void GradientWindow::MarkDelivered(int64_t seq, int64_t delivered_at) {
  const auto it = failures_.find(seq);
  if (it != failures_.end() && it->second == 0) it->second = delivered_at;
}

void GradientWindow::Apply(int64_t seq) {
  applied_seq_ = seq;
  Clear(seq);
}

void GradientWindow::Clear(int64_t seq) {
  from_seq_ = seq;
  seqs_.clear();
  dropped_.clear();
  // A failure above `seq` belongs to the next gradient. It may be known early if the request was
  // invalid at submission.
  failures_.erase(failures_.begin(), failures_.upper_bound(seq));
}

void GradientWindow::Drop() {
  if (seqs_.empty()) return;
  std::vector<int64_t> dropped = std::move(dropped_);
  dropped.insert(dropped.end(), seqs_.begin(), seqs_.end());
  Clear(*seqs_.rbegin());
  dropped_ = std::move(dropped);
}

void GradientWindow::Replace(int64_t seq, const std::vector<int64_t>& held) {
  if (held.empty()) {
    Clear(seq);
  } else {
    seqs_ = std::set<int64_t>(held.begin(), held.end());
  }
}

std::optional<int64_t> GradientWindow::FailureUnknownTo(int64_t step_seq,
                                                        int64_t accepted_at) const {
  for (const auto& [seq, delivered_at] : failures_) {
    if (seq > step_seq) break;
    if (delivered_at == 0 || delivered_at > accepted_at) return seq;
  }
  return std::nullopt;
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
