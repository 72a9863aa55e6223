// The contents of one model's accumulated gradient.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lathe::engine {

// The ledger's copy of (applied_seq, window): the seq of the last operation that changed the
// weights, and the successful forward_backwards since. It also has the failed forward_backwards of
// the open gradient, with the times at which their callers were notified.
class GradientWindow {
 public:
  GradientWindow() = default;
  GradientWindow(int64_t applied_seq, int64_t from_seq)
      : applied_seq_(applied_seq), from_seq_(from_seq) {}

  void Add(int64_t seq);
  // `delivered_at`: 0 while the caller has not been notified.
  void AddFailure(int64_t seq, int64_t delivered_at);
  void MarkDelivered(int64_t seq, int64_t delivered_at);

  // Records an optim_step or a load at `seq`: the weights changed and the accumulator is empty.
  void Apply(int64_t seq);
  // Records that the gradient was dropped at `seq`. The weights are unchanged.
  void Clear(int64_t seq);
  // Records that the accumulator was emptied without a request of the client. Its seqs are
  // remembered until the next step or load.
  void Drop();
  void RestoreDropped(std::vector<int64_t> seqs) { dropped_ = std::move(seqs); }
  // Seqs that the next optim_step would lack, ascending.
  const std::vector<int64_t>& dropped() const { return dropped_; }

  // Replaces the window by the one that a worker reports after a failed operation at `seq`.
  void Replace(int64_t seq, const std::vector<int64_t>& held);

  // Returns the first failure before the optim_step `step_seq` that its caller did not know of when
  // it was accepted at `accepted_at`. Failures above `step_seq` belong to the next gradient.
  std::optional<int64_t> FailureUnknownTo(int64_t step_seq, int64_t accepted_at) const;

  bool Contains(int64_t seq) const { return seqs_.count(seq) > 0; }
  bool empty() const { return seqs_.empty(); }
  std::vector<int64_t> seqs() const { return {seqs_.begin(), seqs_.end()}; }
  int64_t applied_seq() const { return applied_seq_; }
  // Gradients of seqs up to this one are stepped or cleared.
  int64_t from_seq() const { return from_seq_; }

 private:
  int64_t applied_seq_ = 0;
  int64_t from_seq_ = 0;
  std::set<int64_t> seqs_;
  std::map<int64_t, int64_t> failures_;  // seq -> delivered_at
  std::vector<int64_t> dropped_;
};

// Converts to "12,14,15" and back. Decoding ends at the first item that is not a number.
std::string EncodeSeqs(const std::vector<int64_t>& seqs);
std::vector<int64_t> DecodeSeqs(const std::string& text);

}  // namespace lathe::engine
