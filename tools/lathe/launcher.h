// The loop of `lathe up`: start, watch, restart, drain, stop.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/admin.pb.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/announce.h"
#include "tools/lathe/signals.h"
#include "tools/lathe/supervised_ranks.h"
#include "tools/lathe/supervisor.h"
#include "tools/lathe/up_options.h"

namespace lathe::cli {

// Lives on the main thread. Once everything is ready it sleeps until a signal comes.
class Launcher {
 public:
  // All must outlive it.
  Launcher(const LaunchPlan& plan, Signals& signals, Announcer& announcer);

  // Returns after a stop signal with OK, children drained and stopped. Error when a child cannot be
  // brought up the first time: its word follows the child's exit code (configuration, permission,
  // cannot_create, else child_failed). No child is left either way.
  absl::Status Run();

 private:
  // Until a stop signal.
  absl::Status Serve();
  absl::Status HandleDeaths();
  bool IsReady(const GroupPlan& group) const;
  absl::Status FirstStartFailure(const ChildExit& exit) const;
  std::filesystem::path LogPath(const std::string& name) const;
  absl::Status Restart();
  absl::Status CheckReadiness();
  void CheckEngineAndWorkers();
  // What the engine says of it.
  void CheckGroup(const GroupPlan& group, const v1::GroupStatus& told);
  bool GatewayAnswers() const;
  // Once, when all are ready.
  void Announce();
  absl::Duration NextWait() const;
  // {"up": pid, "engine": pid, ...} in DIR/run/pids.json.
  absl::Status WritePids() const;

  // Asks the engine to finish what it accepted and says what is not saved.
  void Drain();
  void ReportDrained(const absl::StatusOr<v1::DrainResponse>& drained);
  void StopAll(absl::Duration grace);

  const LaunchPlan& plan_;
  Signals& signals_;
  Announcer& announcer_;
  RealClock clock_;
  Supervisor supervisor_{clock_};
  AdminClient admin_;
  std::vector<std::unique_ptr<SupervisedRanks>> ranks_;  // by group
  bool has_key_ = false;
  bool is_new_key_ = false;
  bool is_announced_ = false;
};

}  // namespace lathe::cli
