#include "services/engine/core/state/model_log.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/ledger/gradient_window.h"

namespace lathe::engine {
namespace {

using Kind = ReplayOp::Kind;

// Separator after the seqs, at which DecodeSeqs ends.
constexpr char kAfter[] = ", after ";

bool Contains(const std::vector<int64_t>& seqs, int64_t seq) {
  return std::binary_search(seqs.begin(), seqs.end(), seq);
}

int64_t BytesOf(const LogEntry& entry) {
  const auto* const gradient = std::get_if<LoggedGradient>(&entry);
  return gradient == nullptr ? 0 : gradient->body_bytes;
}

absl::Status Missing(const char* what, int64_t seq) {
  return absl::DataLossError(absl::StrFormat("%s seq %d is not kept any more", what, seq));
}

// Appends gradients in order to `ops`, as operations of bounded size.
class GradientAppender {
 public:
  GradientAppender(int64_t max_tokens, std::vector<ReplayOp>& ops)
      : max_tokens_(max_tokens), ops_(ops) {}

  void Add(int64_t seq, int64_t tokens) {
    const bool joins =
        !ops_.empty() && ops_.back().kind == Kind::kGradients && tokens_ + tokens <= max_tokens_;
    if (!joins) {
      ops_.push_back({Kind::kGradients, {}});
      tokens_ = 0;
    }
    ops_.back().seqs.push_back(seq);
    tokens_ += tokens;
  }

 private:
  const int64_t max_tokens_;
  std::vector<ReplayOp>& ops_;
  int64_t tokens_ = 0;
};

}  // namespace

std::string EncodeStepOutcome(const LoggedStep& step) {
  return absl::StrCat(EncodeSeqs(step.window), kAfter, step.after_seq);
}

void DecodeStepOutcome(const std::string& text, LoggedStep& step) {
  step.window = DecodeSeqs(text);
  const size_t after = text.find(kAfter);
  const bool says = after != std::string::npos &&
                    absl::SimpleAtoi(text.substr(after + sizeof(kAfter) - 1), &step.after_seq);
  if (!says) step.after_seq = -1;
}

LogEntry ModelLog::Take(std::map<int64_t, LogEntry>::iterator it) {
  LogEntry entry = std::move(it->second);
  bytes_ -= BytesOf(entry);
  entries_.erase(it);
  return entry;
}

void ModelLog::Add(int64_t seq, LogEntry entry) {
  if (const auto it = entries_.find(seq); it != entries_.end()) Take(it);
  bytes_ += BytesOf(entry);
  entries_.emplace(seq, std::move(entry));
}

const LogEntry* ModelLog::Find(int64_t seq) const {
  const auto it = entries_.find(seq);
  return it == entries_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::vector<ReplayOp>> ModelLog::Path(const ModelPoint& from, const ModelPoint& to,
                                                     const std::vector<int64_t>& publications,
                                                     int64_t max_tokens) const {
  std::set<int64_t> needed(to.window.begin(), to.window.end());
  int64_t applied_seq = from.applied_seq;
  const std::vector<int64_t>* first_window = &to.window;
  for (auto it = entries_.upper_bound(from.applied_seq); it != entries_.end(); ++it) {
    if (const auto* const step = std::get_if<LoggedStep>(&it->second)) {
      const bool follows = step->after_seq < 0 || step->after_seq == applied_seq;
      if (!follows) return Missing("operation", step->after_seq);
      if (applied_seq == from.applied_seq) first_window = &step->window;
      needed.insert(step->window.begin(), step->window.end());
      applied_seq = it->first;
    } else if (std::holds_alternative<LoggedLoad>(it->second)) {
      applied_seq = it->first;
    }
  }
  if (applied_seq != to.applied_seq) return Missing("operation", to.applied_seq);

  std::vector<ReplayOp> ops;
  // `from` may have gradients that were dropped later. None of them may stay.
  const bool continues = std::includes(first_window->begin(), first_window->end(),
                                       from.window.begin(), from.window.end());
  if (!continues) ops.push_back({Kind::kClear, {}});
  for (const int64_t seq : from.window) {
    if (continues) needed.erase(seq);
  }
  for (const int64_t seq : needed) {
    const LogEntry* const entry = Find(seq);
    if (entry == nullptr || !std::holds_alternative<LoggedGradient>(*entry)) {
      return Missing("forward_backward", seq);
    }
  }
  GradientAppender gradients(max_tokens, ops);
  for (auto it = entries_.upper_bound(from.applied_seq); it != entries_.end(); ++it) {
    const int64_t seq = it->first;
    if (const auto* const gradient = std::get_if<LoggedGradient>(&it->second)) {
      if (needed.count(seq) > 0) gradients.Add(seq, gradient->tokens);
    } else if (std::holds_alternative<LoggedStep>(it->second)) {
      ops.push_back({Kind::kStep, {seq}});
    } else if (std::holds_alternative<LoggedLoad>(it->second)) {
      ops.push_back({Kind::kLoad, {seq}});
    } else if (Contains(publications, seq)) {
      ops.push_back({Kind::kPublish, {seq}});
    }
  }
  return ops;
}

std::vector<LogEntry> ModelLog::CutBefore(const ModelPoint& base) {
  std::vector<LogEntry> cut;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool in_base =
        std::holds_alternative<LoggedGradient>(it->second) && Contains(base.window, it->first);
    const auto next = std::next(it);
    if (it->first <= base.applied_seq || in_base) cut.push_back(Take(it));
    it = next;
  }
  return cut;
}

std::vector<LogEntry> ModelLog::CutDropped(int64_t from_seq) {
  std::set<int64_t> applied;
  for (const auto& [seq, entry] : entries_) {
    if (const auto* const step = std::get_if<LoggedStep>(&entry)) {
      applied.insert(step->window.begin(), step->window.end());
    }
  }
  std::vector<LogEntry> cut;
  for (auto it = entries_.begin(); it != entries_.end() && it->first <= from_seq;) {
    const auto next = std::next(it);
    const bool is_gradient = std::holds_alternative<LoggedGradient>(it->second);
    if (is_gradient && applied.count(it->first) == 0) cut.push_back(Take(it));
    it = next;
  }
  return cut;
}

std::vector<LogEntry> ModelLog::CutAll() {
  std::vector<LogEntry> cut;
  while (!entries_.empty()) cut.push_back(Take(entries_.begin()));
  return cut;
}

std::vector<int64_t> ModelLog::Loads() const {
  std::vector<int64_t> seqs;
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (std::holds_alternative<LoggedLoad>(it->second)) seqs.push_back(it->first);
  }
  return seqs;
}

}  // namespace lathe::engine
