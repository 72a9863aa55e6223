// Memory that the ranks of one host share, and their synchronization in it. Does not include torch.
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

// Describes the collective that a rank is about to run. A difference between ranks is an error.
struct RoundSignature {
  int64_t number = 0;  // number of the collective
  int64_t payload_bytes = 0;
  uint64_t name_hash = 0;
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t root = 0;

  bool operator==(const RoundSignature&) const = default;
};

// An anonymous file that every rank maps. The kernel frees it when the last process is gone. Each
// rank has two buffers, which all may read, and a counter of the rounds it has entered.
//
// A rank writes data, then enters a round. Other ranks may read the data once they see that it has
// entered. A rank that has entered the following round has read it. So the writer may overwrite the
// data two rounds later, if it has seen every rank in the round between.
//
// Each rank holds a lock on the file while it lives. The kernel releases the lock however the
// process ends. A waiting rank is woken by the end of the other where the kernel reports that.
// Elsewhere it checks the lock every few milliseconds. Each rank uses one thread.
class SharedSegment {
 public:
  static constexpr int64_t kBufferBytes = int64_t{256} << 10;

  // Rank 0 calls it. Unavailable: there is no memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(int world);
  // The other ranks call it. Unavailable: rank 0's handle is not valid here, because rank 0 has
  // another host, container or user, or the handle names something that Create did not make. Such a
  // thing is not opened.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(const std::string& handle, int rank,
                                                             int world);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;

  // Call after all ranks have opened the segment and before the first wait. Afterwards the end of
  // another rank's process wakes a wait, where the kernel reports it.
  void WatchOthers();

  // Handle for Open, valid while rank 0 lives.
  std::string handle() const;

  std::byte* buffer(int rank, int index) const;
  // Signature of the current round as `rank` wrote it. Call after Await has returned kHere for
  // `rank`.
  const RoundSignature& signature(int rank) const;

  // Enters the next round and wakes the ranks that wait for it.
  void Enter(const RoundSignature& signature);

  enum class Arrival { kHere, kGone, kLate };
  // Blocks until `rank` has entered this rank's current round or a later one.
  Arrival Await(int rank, absl::Time deadline) const;

  // Marks this rank as gone for the others.
  void Leave();

  // Number of sleeps while waiting for other ranks, since the start.
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
  bool is_here_ = false;          // this rank holds its lock
  std::vector<bool> is_watched_;  // by rank
  mutable int64_t num_sleeps_ = 0;
  std::unique_ptr<ProcessWatch> watch_;  // reset before the memory is unmapped
};

}  // namespace lathe::worker
