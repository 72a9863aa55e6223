// The last collectives of a process, for finding out why one of them hung.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe::worker {

// Facts about a collective at the time of its call.
struct RecordedCollective {
  std::string_view axis;
  // Counts the calls on its axis from 1. It is the same on all ranks of a healthy sub-mesh.
  int64_t number = 0;
  std::string_view kind;
  // The first 63 characters are kept.
  std::string_view name;
  std::string_view dtype;
  int64_t num_elements = 0;
};

// Records the collectives of all communicators of a process, because their interleaving is part of
// the evidence. There is one per process. Thread-safe. A call allocates nothing.
class FlightRecorder {
 public:
  using Id = uint64_t;

  explicit FlightRecorder(size_t capacity = 256) : entries_(capacity) {}

  // Records that the call was made. Returns the id for the functions below.
  Id Queued(const RecordedCollective& collective);
  // Records that the transport or the device has begun.
  void Started(Id id);
  void Done(Id id);
  void Failed(Id id);

  // Returns a line for each collective that is still recorded, oldest first:
  //   22:41:07.103214 tp #12 all-reduce sum layers.0.o float32 x 4096 started +0.000051s done
  //   +0.000410s
  // The time of day is when the call was queued (UTC). The other times count from there.
  std::string Dump() const;

 private:
  enum class State : uint8_t { kQueued, kStarted, kDone, kFailed };
  struct Entry {
    Id id = 0;
    char axis[16] = {};
    char kind[20] = {};
    char name[64] = {};
    char dtype[16] = {};
    int64_t number = 0;
    int64_t num_elements = 0;
    State state = State::kQueued;
    absl::Time queued, started, ended;
  };

  Entry* FindLocked(Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(Id id, State state);
  static std::string Describe(const Entry& entry);

  mutable absl::Mutex mu_;
  Id last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
