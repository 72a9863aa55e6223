// The order of one model's operations: what may run, given what arrived, ended and is missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lathe::engine {

// An operation becomes ready when every smaller seq is resolved, where operations between two
// barriers commute: they wait only for the barrier before them. A missing seq holds back everything
// above it until it arrives or is closed. Seqs start at 1. Pure: no clock, no I/O.
class SeqOrder {
 public:
  struct Operation {
    // Waits for everything before it, and everything after waits for it.
    bool is_barrier = false;
    // May belong to a group of parallel submissions whose smaller members are still coming.
    bool waits_for_gap = false;
    int64_t arrived_at = 0;
  };

  // Every seq up to `closed_seq` either ended or is abandoned, unless it is added.
  explicit SeqOrder(int64_t closed_seq = 0) : closed_seq_(closed_seq), contiguous_(closed_seq) {}

  // Through which seq the arrival of `seq` proves the missing ones abandoned; at least
  // closed_seq(). In a serial session submissions arrive in order, so every arrival proves it; in a
  // concurrent one only that of an operation which cannot overtake members of its own group
  // (tinker-api 18.4).
  int64_t ClosedByArrival(int64_t seq, bool serial, bool waits_for_gap) const;

  void Add(int64_t seq, const Operation& operation);
  // A seq below `seq` neither came nor is closed.
  bool IsMissingBelow(int64_t seq) const { return contiguous_ < seq - 1; }
  // Missing seqs up to `seq` will not come.
  void Close(int64_t seq);
  // The operation ended, ready or not.
  void Resolve(int64_t seq);

  // Seqs that became ready since the last call, ascending.
  std::vector<int64_t> TakeReady();

  // The largest seq that has waited above a missing one since `before` or longer.
  std::optional<int64_t> OverdueAboveGap(int64_t before) const;

  // The smallest missing seq that operations wait for, and since when the first of them does.
  struct Gap {
    int64_t missing_seq = 0;
    int64_t waited_since = 0;
  };
  std::optional<Gap> FirstGap() const;

  bool Contains(int64_t seq) const { return operations_.count(seq) > 0; }
  // Operations not resolved, ascending.
  std::vector<int64_t> Unresolved() const;
  // Those of them that were taken as ready.
  std::vector<int64_t> Issued() const;
  bool IsIssued(int64_t seq) const;
  // Every seq up to here ended or is abandoned.
  int64_t ResolvedThrough() const;
  int64_t closed_seq() const { return closed_seq_; }
  // The largest seq that came or is closed.
  int64_t max_seq() const { return std::max(max_seq_, closed_seq_); }
  // What an operation without a seq of its own gets.
  int64_t NextFreeSeq() const { return max_seq() + 1; }

 private:
  struct Entry {
    Operation operation;
    bool issued = false;
    bool resolved = false;
  };

  void ExtendContiguous();
  std::optional<Gap> FindFirstGap() const;

  std::map<int64_t, Entry> operations_;  // resolved ones only while next_ has not passed them
  int64_t closed_seq_;
  int64_t contiguous_;  // every seq up to here came or is closed
  int64_t max_seq_ = 0;
  int64_t next_ = 1;             // everything below was issued, resolved or abandoned
  int64_t num_open_ = 0;         // issued and not resolved
  bool barrier_issued_ = false;  // then next_ stands on it
  // Thousands may wait above a gap, and somebody asks every second. Unset: to be found again.
  mutable std::optional<std::optional<Gap>> first_gap_;
};

}  // namespace lathe::engine
