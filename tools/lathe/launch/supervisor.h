// Starts child processes and restarts those that end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/launch/child_process.h"

namespace lathe::cli {

// Describes the end of a child.
struct ChildExit {
  std::string name;
  int wait_status = 0;
  bool was_ready = false;
  // Number of consecutive exits before it was ready, including this one; 0 if it was ready.
  int early_deaths = 0;
  pid_t pid = 0;
  bool was_asked = false;  // true if Kill ended it; false if it had ended before
  bool is_out_of_memory =
      false;  // ended by SIGKILL, and the machine has had an OOM kill since its start
  absl::Duration restart_in;
};

// Longest time between two calls of Supervisor::TrimLogs.
inline constexpr absl::Duration kTrimPeriod = absl::Minutes(1);

// Starts children, notices when they end and restarts them. A child that was ready restarts at
// once. Otherwise a back-off applies, which doubles from 100 ms to 10 s. Main thread only.
class Supervisor {
 public:
  // `clock` must outlive the supervisor.
  explicit Supervisor(Clock& clock) : clock_(clock) {}
  Supervisor(const Supervisor&) = delete;

  absl::Status Start(ChildSpec spec);

  // Returns the children that ended and schedules their restarts.
  std::vector<ChildExit> Reap();

  // Starts the children whose restart is due, and returns their names.
  absl::StatusOr<std::vector<std::string>> RestartDue();

  // Time until the next restart is due; infinite if none is scheduled.
  absl::Duration UntilNextRestart() const;

  void MarkReady(const std::string& name);
  bool IsReady(const std::string& name) const;
  bool AllReady() const;

  // Time since the child's last start. Zero while it is not running.
  absl::Duration Age(const std::string& name) const;
  // Pid of the child's last start, even while it waits for its restart.
  pid_t Pid(const std::string& name) const;

  // Returns the last lines that the child wrote since its last start, at most `max_bytes`.
  std::string LogTail(const std::string& name, std::size_t max_bytes = 2000) const;

  // Trims the logs that are longer than `max_bytes` (TrimLog).
  void TrimLogs(std::uintmax_t max_bytes = kMaxLogBytes);

  // Sends SIGKILL if child `name` still runs as `pid`. The child is restarted as usual.
  void Kill(const std::string& name, pid_t pid);

  // Sends SIGTERM to all of them, and SIGKILL after `grace`. Returns when all have ended. They are
  // not restarted.
  void Stop(const std::vector<std::string>& names, absl::Duration grace);

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;
    bool is_running = false;
    bool is_ready = false;
    bool is_asked_to_end = false;
    int early_deaths = 0;
    int64_t oom_kills = 0;  // count of the machine at the child's start
    absl::Time started;
    std::optional<absl::Time> restart_at;
    std::streamoff log_start = 0;
  };

  const Child& Find(const std::string& name) const;
  Child& Find(const std::string& name);
  absl::Status Spawn(Child& child);
  // Returns true and fills `wait_status` if the child has ended.
  static bool HasEnded(const Child& child, int& wait_status);

  Clock& clock_;
  std::vector<Child> children_;
};

}  // namespace lathe::cli
