// Memory that the ranks of one host share, and their waiting for each other in it. Free of torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/collectives/process_watch.h"

namespace lathe::worker {

// What a rank is about to do; all ranks say the same, or something is wrong.
struct RoundSignature {
  int64_t number = 0;  // of the collective
  int64_t payload_bytes = 0;
  uint64_t name_hash = 0;
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t root = 0;

  bool operator==(const RoundSignature&) const = default;
};

// An anonymous file that every rank maps: nothing of it stays when the last process is gone.
// Each rank has two buffers, which all may read, and a counter of the rounds that it has entered.
//
// What a rank writes before it enters a round, others read once they see it there. It may be
// written again two rounds later: whoever was seen in the round between has read it.
//
// Each rank holds a lock on the file while it lives. The kernel gives it back however the process
// ends. Whoever waits for a rank is woken by its end where the kernel tells of that, and looks at
// the lock every few milliseconds where it does not. One thread per rank.
class SharedSegment {
 public:
  static constexpr int64_t kBufferBytes = int64_t{256} << 10;

  // By rank 0. Unavailable when there is no memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(int world);
  // By the others. Unavailable when rank 0's handle means nothing here: another host, another
  // container, another user; or names anything but the memory that Create makes, which then is not
  // opened.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(const std::string& handle, int rank,
                                                             int world);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;

  // Once all ranks have opened it, and before anyone waits: waits need no looks from here on.
  void WatchOthers();

  // While rank 0 lives.
  std::string handle() const;

  std::byte* buffer(int rank, int index) const;
  // Of the round that `rank` was last seen to enter, by whoever is in that round too.
  const RoundSignature& signature(int rank) const;

  // Enters the next round, and wakes those who wait for it.
  void Enter(const RoundSignature& signature);

  enum class Arrival { kHere, kGone, kLate };
  // Waits until `rank` is in this rank's round, or beyond it.
  Arrival Await(int rank, absl::Time deadline) const;

  // Others see this rank as gone.
  void Leave();

  // How often a wait for another rank has slept, since the start.
  int64_t num_sleeps() const { return num_sleeps_; }

 private:
  struct Control;

  SharedSegment(int fd, int rank, int world, uint64_t nonce);
  absl::Status Map();
  absl::Status Lock();
  bool IsAlive(int rank) const;
  bool Watch(int rank);
  void MarkGone(int rank) const;
  Control& control(int rank) const;
  static size_t SizeOf(int world);

  const int fd_;
  const int rank_;
  const int world_;
  const uint64_t nonce_;
  const bool has_own_core_;
  std::byte* memory_ = nullptr;
  uint32_t round_ = 0;
  bool is_here_ = false;          // has the lock
  std::vector<bool> is_watched_;  // by rank
  mutable int64_t num_sleeps_ = 0;
  std::unique_ptr<ProcessWatch> watch_;  // ends before the memory goes
};

}  // namespace lathe::worker
