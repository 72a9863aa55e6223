// Keeps processes running.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/child_process.h"

namespace lathe::cli {

// A child that ended.
struct ChildExit {
  std::string name;
  int wait_status = 0;
  bool was_ready = false;
  // Deaths in a row before it was ready, this one included; 0 when it was ready.
  int early_deaths = 0;
  pid_t pid = 0;
  bool was_asked = false;  // Kill ended it; it had not ended by itself when that came
  bool is_out_of_memory =
      false;  // SIGKILL, and the kernel has killed something for memory meanwhile
  absl::Duration restart_in;
};

// Starts children, notices their end and starts them again: at once after a death when ready, with
// a back-off that doubles from 100 ms to 10 s after each death before that. Main thread only.
class Supervisor {
 public:
  // `clock` must outlive it.
  explicit Supervisor(Clock& clock) : clock_(clock) {}
  Supervisor(const Supervisor&) = delete;

  absl::Status Start(ChildSpec spec);

  // Collects the children that ended and plans their restart.
  std::vector<ChildExit> Reap();

  // Starts what is due; the names that were started.
  absl::StatusOr<std::vector<std::string>> RestartDue();

  // Until the next restart is due; infinite when none is planned.
  absl::Duration UntilNextRestart() const;

  void MarkReady(const std::string& name);
  bool IsReady(const std::string& name) const;
  bool AllReady() const;

  // Since its last start. Zero while it is not running.
  absl::Duration Age(const std::string& name) const;
  // The last one, also while it waits for its restart.
  pid_t Pid(const std::string& name) const;

  // The last lines, at most `max_bytes`, it wrote since its last start.
  std::string LogTail(const std::string& name, std::size_t max_bytes = 2000) const;

  // SIGKILL, if the child of this name still has this pid. It is started again.
  void Kill(const std::string& name, pid_t pid);

  // SIGTERM to all of them, and SIGKILL after `grace`; returns when they are gone. They are not
  // started again.
  void Stop(const std::vector<std::string>& names, absl::Duration grace);

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;
    bool is_running = false;
    bool is_ready = false;
    bool is_asked_to_end = false;
    int early_deaths = 0;
    int64_t oom_kills = 0;  // of the machine, when it was started
    absl::Time started;
    std::optional<absl::Time> restart_at;
    std::streamoff log_start = 0;
  };

  const Child& Find(const std::string& name) const;
  Child& Find(const std::string& name);
  absl::Status Spawn(Child& child);
  // Whether the child has ended; fills `wait_status`.
  static bool HasEnded(const Child& child, int& wait_status);

  Clock& clock_;
  std::vector<Child> children_;
};

}  // namespace lathe::cli
