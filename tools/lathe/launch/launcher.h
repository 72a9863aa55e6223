// The loop of `lathe up`: start, watch, restart, drain, stop.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/admin.pb.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/announce.h"
#include "tools/lathe/launch/supervised_ranks.h"
#include "tools/lathe/launch/supervisor.h"
#include "tools/lathe/launch/up_options.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {

// Runs the children of `lathe up`. Main thread only. It polls until all children are ready and then
// sleeps until a signal arrives or a restart is due.
class Launcher {
 public:
  // All arguments must outlive the launcher.
  Launcher(const LaunchPlan& plan, Signals& signals, Announcer& announcer);

  // Returns OK after a stop signal, once the engine is drained. Fails if a child cannot be started
  // for the first time; the child's exit code determines the error word (configuration, permission,
  // cannot_create, else child_failed). A worker fails the start only if no base model is left: the
  // others are served meanwhile. All children are stopped in either case.
  absl::Status Run();

 private:
  // Starts and watches the children. Returns OK after a stop signal.
  absl::Status Serve();
  absl::Status HandleDeaths();
  bool IsReady(const GroupPlan& group) const;
  bool IsReady(size_t model) const;
  // Returns the group of a worker; nullptr: the child is none.
  const GroupPlan* GroupOf(const std::string& child) const;
  absl::Status CheckFirstStart(const ChildExit& exit);
  std::filesystem::path LogPath(const std::string& name) const;
  absl::Status Restart();
  absl::Status CheckReadiness();
  void CheckEngineAndWorkers();
  // Marks the workers of `group` ready if `group_status`, the engine's report, says so.
  void CheckGroup(const GroupPlan& group, const v1::GroupStatus& group_status);
  // Prints the progress of the first group that loads.
  void ShowLoading(const v1::GetStatusResponse& status);
  // Says which base models work after all.
  void CheckFailedModels();
  // Removes the groups of an earlier `lathe up` that this one does not start. A base model that
  // moves to a group of another name is removed from its old group once the new one is ready.
  void RemoveLeftovers(const v1::GetStatusResponse& status);
  bool GatewayAnswers() const;
  // Returns true if all children are ready but the workers of failed models.
  bool IsComplete() const;
  // Called once, when IsComplete for the first time.
  void Announce();
  absl::Duration NextWait() const;
  // Writes {"up": pid, "engine": pid, ...} to DIR/run/pids.json.
  absl::Status WritePids() const;

  // Asks the engine to finish accepted work and prints which models are not saved.
  void Drain();
  void ReportDrained(const absl::StatusOr<v1::DrainResponse>& drained);
  void StopAll(absl::Duration grace);

  const LaunchPlan& plan_;
  Signals& signals_;
  Announcer& announcer_;
  RealClock clock_;
  Supervisor supervisor_{clock_};
  AdminClient admin_;
  std::vector<std::unique_ptr<SupervisedRanks>> ranks_;  // one per group of the plan
  std::set<size_t> failed_models_;  // base models whose workers could not start
  bool has_key_ = false;
  bool is_new_key_ = false;
  bool is_announced_ = false;
};

}  // namespace lathe::cli
