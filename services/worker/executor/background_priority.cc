#include "services/worker/executor/background_priority.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "libs/common/logging/logging.h"

namespace lathe::worker {
namespace {

// Taking one core from a pass delays the whole pass. A lower value makes this thread's work take
// longer.
constexpr int kNiceness = 10;

// From linux/ioprio.h, which not every distribution ships: target thread, class best effort, level
// 7.
constexpr int kIoprioWhoProcess = 1;
constexpr int kIoprioLowest = (2 << 13) | 7;

}  // namespace

void YieldProcessor(const char* thread) {
  errno = 0;
  if (nice(kNiceness) == -1 && errno != 0) {
    LogWarn("the CPU priority of a background thread cannot be lowered",
            {{"thread", thread}, {"errno", errno}});
  }
}

void YieldDisk(const char* thread) {
  if (syscall(SYS_ioprio_set, kIoprioWhoProcess, 0, kIoprioLowest) == 0) return;
  LogWarn("the disk priority of a background thread cannot be lowered",
          {{"thread", thread}, {"errno", errno}});
}

}  // namespace lathe::worker
