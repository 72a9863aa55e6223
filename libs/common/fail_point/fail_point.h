// Fail points: named places in the code at which a test makes this process fail.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lathe {
namespace fail_point_internal {
// The only global variable, on purpose: a point may be anywhere, and must cost nothing when it is
// off.
extern std::atomic<bool> armed;
int Pass(std::string_view name, int64_t value = 0);
}  // namespace fail_point_internal

// Reads the environment once, in main, before any thread starts. Unset: every point stays off.
//   LATHE_FAIL_POINTS         rules, "engine.commit.before=kill@3,worker.save.fsync=error:5"
//   LATHE_FAIL_POINTS_FILE    a file of additional rules. It may appear and change while processes
//                             run; its rules count passes from then on. Replace it by a rename, so
//                             that no process reads half of it
//   LATHE_FAIL_POINT_COUNTS   a directory: the file PROCESS.PID counts the passes and firings of
//                             each point, even if the process is killed
//   LATHE_FAIL_SEED           random seed of the rules with a probability
// A rule is NAME=ACTION and an optional condition. ACTION: kill, stop (SIGKILL and SIGSTOP to the
// process), abort, segv, sleep:MS, error[:ERRNO] (default EIO), or skip (only where the list allows
// it). The condition starts with ?V for the passes with that value, at a point that has values.
// Then @N is the N-th of these passes, @N+ that one and all later ones, %P each with probability P.
// The default is every pass. A final #PID limits the rule to one process.
// Returns InvalidArgument for a bad rule, also for one in the file if it exists at the start. A bad
// file that appears later is logged and ignored.
absl::Status ArmFailPoints(std::string_view process);

// Replaces all rules without reading the environment. "" turns every point off.
absl::Status SetFailPointsForTest(std::string_view rules);

// Passes the point `name`, one of fail_point_list.h. May not return.
inline void FailPoint(std::string_view name) {
  if (fail_point_internal::armed.load(std::memory_order_relaxed)) [[unlikely]] {
    fail_point_internal::Pass(name);
  }
}

// Passes a point whose passes have a value.
inline void FailPoint(std::string_view name, int64_t value) {
  if (fail_point_internal::armed.load(std::memory_order_relaxed)) [[unlikely]] {
    fail_point_internal::Pass(name, value);
  }
}

// Result of FailPointErrno: the caller skips the next step and reports it as done.
inline constexpr int kFailPointSkip = -1;

// Passes a point where the program can handle an error. Returns 0, an errno that the caller treats
// as that of the next call, or kFailPointSkip where the list allows it.
[[nodiscard]] inline int FailPointErrno(std::string_view name) {
  if (fail_point_internal::armed.load(std::memory_order_relaxed)) [[unlikely]] {
    return fail_point_internal::Pass(name);
  }
  return 0;
}

}  // namespace lathe
