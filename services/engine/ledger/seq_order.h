// Order of one model's operations: which may run, given the seqs that arrived, ended or are
// missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lathe::engine {

// An operation becomes ready when every smaller seq is resolved. Operations between two barriers
// commute: they wait only for the barrier before them. A missing seq blocks everything above it
// until it arrives or is closed. Seqs start at 1. The class has no clock and does no I/O.
class SeqOrder {
 public:
  struct Operation {
    // A barrier waits for everything before it, and everything after waits for it.
    bool is_barrier = false;
    int64_t arrived_at = 0;
  };

  // Every seq up to `closed_seq` either ended or is abandoned, unless it is added later.
  explicit SeqOrder(int64_t closed_seq = 0) : closed_seq_(closed_seq), contiguous_(closed_seq) {}

  // Returns the largest seq through which the arrival of `seq` proves the missing ones abandoned;
  // at least closed_seq(). In a serial session submissions arrive in order, so every arrival proves
  // it. In a concurrent session only a barrier proves it. Other operations may belong to
  // parallel submissions, whose smaller seqs may arrive later.
  int64_t ClosedByArrival(int64_t seq, bool serial, bool is_barrier) const;

  void Add(int64_t seq, const Operation& operation);
  // Returns true if a seq below `seq` neither arrived nor is closed.
  bool IsMissingBelow(int64_t seq) const { return contiguous_ < seq - 1; }
  // Abandons the missing seqs up to `seq`.
  void Close(int64_t seq);
  // Records the end of an operation, ready or not.
  void Resolve(int64_t seq);

  // Returns the seqs that became ready since the last call, ascending.
  std::vector<int64_t> TakeReady();

  // Returns the largest seq that arrived by `before` and waits above a missing one.
  std::optional<int64_t> OverdueAboveGap(int64_t before) const;

  // The smallest missing seq for which operations wait, and the time since which the first of them
  // waits.
  struct Gap {
    int64_t missing_seq = 0;
    int64_t waited_since = 0;
  };
  std::optional<Gap> FirstGap() const;

  bool Contains(int64_t seq) const { return operations_.count(seq) > 0; }
  // Seqs of operations that are not resolved, ascending.
  std::vector<int64_t> Unresolved() const;
  // Unresolved operations that TakeReady has returned.
  std::vector<int64_t> Issued() const;
  bool IsIssued(int64_t seq) const;
  // The largest seq up to which every seq ended or is abandoned.
  int64_t ResolvedThrough() const;
  int64_t closed_seq() const { return closed_seq_; }
  // The largest seq that arrived or is closed.
  int64_t max_seq() const { return std::max(max_seq_, closed_seq_); }
  // The seq for an operation that was submitted without one.
  int64_t NextFreeSeq() const { return max_seq() + 1; }

 private:
  struct Entry {
    Operation operation;
    bool issued = false;
    bool resolved = false;
  };

  void ExtendContiguous();
  std::optional<Gap> FindFirstGap() const;

  std::map<int64_t, Entry> operations_;  // ended ones until next_ has passed them
  int64_t closed_seq_;
  int64_t contiguous_;  // every seq up to this one arrived or is closed
  int64_t max_seq_ = 0;
  int64_t next_ = 1;             // every seq below was issued, resolved or abandoned
  int64_t num_open_ = 0;         // number issued and not resolved
  bool barrier_issued_ = false;  // true: the operation at next_ is an issued barrier
  // Cache of FindFirstGap, as thousands may wait above a gap and callers ask every second. Unset:
  // to be computed again.
  mutable std::optional<std::optional<Gap>> first_gap_;
};

}  // namespace lathe::engine
