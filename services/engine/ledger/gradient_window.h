// The contents of one model's accumulated gradient.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::engine {

// Clients split a batch of more than 1,024 datums or 5 MB, and send the next part when the one
// before it is accepted, which may be after its failure was answered. A request and the next one
// of the same batch have more than this many bytes here, as all numbers take 4 bytes or more.
inline constexpr int64_t kSplitBatchBytes = 1 << 20;

// The ledger's copy of (applied_seq, window): the seq of the last operation that changed the
// weights, and the successful forward_backwards since. It also has the failed forward_backwards of
// the open gradient, with the times at which their answers had been written.
class GradientWindow {
 public:
  GradientWindow() = default;
  GradientWindow(int64_t applied_seq, int64_t from_seq)
      : applied_seq_(applied_seq), from_seq_(from_seq) {}

  // `accepted_at`: when the request was accepted; 0: unknown. `bytes`: TrainArgs::batch_bytes.
  void Add(int64_t seq, int64_t accepted_at, int64_t bytes);
  // `delivered_at`: 0 until the answer was written.
  void AddFailure(int64_t seq, int64_t delivered_at, int64_t bytes);
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

  // Returns the first failure that makes the gradient of the optim_step `step_seq` a part of what
  // its caller meant; nullopt: none does. `accepted_at`: when the step was accepted. A failure is
  // harmless if the gradient began after it: nothing before it succeeded, its answer had been
  // written before the step and all that succeeded were accepted, and none of those can be the
  // rest of its batch. Failures above `step_seq` belong to the next gradient.
  std::optional<int64_t> SpoilingFailure(int64_t step_seq, int64_t accepted_at) const;

  bool Contains(int64_t seq) const { return successes_.count(seq) > 0; }
  bool empty() const { return successes_.empty(); }
  std::vector<int64_t> seqs() const;
  int64_t applied_seq() const { return applied_seq_; }
  // Gradients of seqs up to this one are stepped or cleared.
  int64_t from_seq() const { return from_seq_; }

 private:
  int64_t applied_seq_ = 0;
  int64_t from_seq_ = 0;
  struct Success {
    int64_t accepted_at = 0;
    int64_t bytes = 0;
  };
  struct Failure {
    int64_t delivered_at = 0;
    int64_t bytes = 0;
  };

  std::map<int64_t, Success> successes_;  // by seq
  std::map<int64_t, Failure> failures_;   // by seq
  std::vector<int64_t> dropped_;
};

// Converts to "12,14,15" and back. Decoding ends at the first item that is not a number.
std::string EncodeSeqs(const std::vector<int64_t>& seqs);
std::vector<int64_t> DecodeSeqs(const std::string& text);

}  // namespace lathe::engine
