// What one model's accumulated gradient consists of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lathe::engine {

// The ledger's half of (applied_seq, window): the seq of the last operation that changed the
// weights, and the successful forward_backwards since. Also remembers which forward_backwards of
// the open gradient failed, and when their callers learned of it.
class GradientWindow {
 public:
  GradientWindow() = default;
  GradientWindow(int64_t applied_seq, int64_t from_seq)
      : applied_seq_(applied_seq), from_seq_(from_seq) {}

  void Add(int64_t seq);
  // `delivered_at`: 0 while the caller has not been told.
  void AddFailure(int64_t seq, int64_t delivered_at);
  void MarkDelivered(int64_t seq, int64_t delivered_at);

  // An optim_step or a load at `seq` changed the weights and emptied the accumulator.
  void Apply(int64_t seq);
  // The gradient was dropped at `seq`; the weights are as before.
  void Clear(int64_t seq);
  // The accumulator was emptied although nobody asked for it. Until a step or a load it is
  // remembered what it had.
  void Drop();
  void RestoreDropped(std::vector<int64_t> seqs) { dropped_ = std::move(seqs); }
  // Ascending; empty: nothing that an optim_step would lack.
  const std::vector<int64_t>& dropped() const { return dropped_; }

  // The seqs that a worker reports after an operation at `seq` that failed there.
  void Replace(int64_t seq, const std::vector<int64_t>& held);

  // The first failure before the optim_step `step_seq` that its caller, accepted at `accepted_at`,
  // did not know of. Those after it are of the next gradient.
  std::optional<int64_t> FailureUnknownTo(int64_t step_seq, int64_t accepted_at) const;

  bool Contains(int64_t seq) const { return seqs_.count(seq) > 0; }
  bool empty() const { return seqs_.empty(); }
  std::vector<int64_t> seqs() const { return {seqs_.begin(), seqs_.end()}; }
  int64_t applied_seq() const { return applied_seq_; }
  // Gradients of seqs up to here are stepped or cleared.
  int64_t from_seq() const { return from_seq_; }

 private:
  int64_t applied_seq_ = 0;
  int64_t from_seq_ = 0;
  std::set<int64_t> seqs_;
  std::map<int64_t, int64_t> failures_;  // seq -> delivered_at
  std::vector<int64_t> dropped_;
};

// "12,14,15" and back; what is not a number ends the list.
std::string EncodeSeqs(const std::vector<int64_t>& seqs);
std::vector<int64_t> DecodeSeqs(const std::string& text);

}  // namespace lathe::engine
