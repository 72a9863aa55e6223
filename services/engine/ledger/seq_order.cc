#include "services/engine/ledger/seq_order.h"

#include <algorithm>

namespace lathe::engine {

int64_t SeqOrder::ClosedByArrival(int64_t seq, bool serial, bool is_barrier) const {
  if (!serial && !is_barrier) return closed_seq_;
  return std::max(closed_seq_, seq - 1);
}

void SeqOrder::Add(int64_t seq, const Operation& operation) {
  operations_[seq].operation = operation;
  first_gap_.reset();
  max_seq_ = std::max(max_seq_, seq);
  ExtendContiguous();
}

void SeqOrder::Close(int64_t seq) {
  closed_seq_ = std::max(closed_seq_, seq);
  contiguous_ = std::max(contiguous_, seq);
  first_gap_.reset();
  ExtendContiguous();
}

void SeqOrder::ExtendContiguous() {
  while (operations_.count(contiguous_ + 1) > 0) ++contiguous_;
}

void SeqOrder::Resolve(int64_t seq) {
  const auto it = operations_.find(seq);
  if (it == operations_.end() || it->second.resolved) return;
  Entry& entry = it->second;
  entry.resolved = true;
  first_gap_.reset();
  if (!entry.issued) return;
  --num_open_;
  if (entry.operation.is_barrier) {
    barrier_issued_ = false;
    next_ = seq + 1;
  }
  operations_.erase(it);
}

std::vector<int64_t> SeqOrder::TakeReady() {
  std::vector<int64_t> ready;
  while (!barrier_issued_) {
    const auto it = operations_.lower_bound(next_);
    if (it == operations_.end() || it->first > contiguous_) break;
    const int64_t seq = it->first;
    next_ = seq;
    Entry& entry = it->second;
    if (entry.resolved) {
      operations_.erase(it);
      ++next_;
      continue;
    }
    if (entry.operation.is_barrier && num_open_ > 0) break;
    entry.issued = true;
    ++num_open_;
    ready.push_back(seq);
    if (entry.operation.is_barrier) {
      barrier_issued_ = true;
    } else {
      ++next_;
    }
  }
  return ready;
}

std::optional<int64_t> SeqOrder::OverdueAboveGap(int64_t before) const {
  const std::optional<Gap> gap = FirstGap();
  if (!gap || gap->waited_since > before) return std::nullopt;
  std::optional<int64_t> overdue;
  for (auto it = operations_.upper_bound(contiguous_); it != operations_.end(); ++it) {
    if (!it->second.resolved && it->second.operation.arrived_at <= before) overdue = it->first;
  }
  return overdue;
}

std::optional<SeqOrder::Gap> SeqOrder::FirstGap() const {
  if (!first_gap_) first_gap_ = FindFirstGap();
  return *first_gap_;
}

std::optional<SeqOrder::Gap> SeqOrder::FindFirstGap() const {
  std::optional<Gap> gap;
  for (auto it = operations_.upper_bound(contiguous_); it != operations_.end(); ++it) {
    const Operation& operation = it->second.operation;
    if (it->second.resolved) continue;
    if (!gap) gap = Gap{contiguous_ + 1, operation.arrived_at};
    gap->waited_since = std::min(gap->waited_since, operation.arrived_at);
  }
  return gap;
}

std::vector<int64_t> SeqOrder::Unresolved() const {
  std::vector<int64_t> seqs;
  for (const auto& [seq, entry] : operations_) {
    if (!entry.resolved) seqs.push_back(seq);
  }
  return seqs;
}

std::vector<int64_t> SeqOrder::Issued() const {
  std::vector<int64_t> seqs;
  for (const auto& [seq, entry] : operations_) {
    if (entry.issued && !entry.resolved) seqs.push_back(seq);
  }
  return seqs;
}

bool SeqOrder::IsIssued(int64_t seq) const {
  const auto it = operations_.find(seq);
  return it != operations_.end() && it->second.issued && !it->second.resolved;
}

int64_t SeqOrder::ResolvedThrough() const {
  for (const auto& [seq, entry] : operations_) {
    if (!entry.resolved) return std::min(seq - 1, contiguous_);
  }
  return contiguous_;
}

}  // namespace lathe::engine
