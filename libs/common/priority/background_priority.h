// Low priority for threads whose work must not slow down that of others.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "libs/common/logging/logging.h"

namespace lathe {

// Lowers the calling thread's priority: it gets about a tenth of a core while others use every
// core, and a whole core otherwise. `thread` is its name in the warning if the system refuses.
inline void YieldProcessor(const char* thread) {
  // A core that is taken from one thread of a worker's pass delays the whole pass. A lower value
  // makes the background work take longer.
  constexpr int kNiceness = 10;
  errno = 0;
  if (nice(kNiceness) == -1 && errno != 0) {
    LogWarn("the CPU priority of a background thread cannot be lowered",
            {{"thread", thread}, {"errno", errno}});
  }
}

// Gives the calling thread's disk requests the lowest priority of their class.
inline void YieldDisk(const char* thread) {
  // From linux/ioprio.h, which not every distribution ships: target thread, class best effort,
  // level 7.
  constexpr int kWhoProcess = 1;
  constexpr int kLowest = (2 << 13) | 7;
  if (syscall(SYS_ioprio_set, kWhoProcess, 0, kLowest) == 0) return;
  LogWarn("the disk priority of a background thread cannot be lowered",
          {{"thread", thread}, {"errno", errno}});
}

}  // namespace lathe
