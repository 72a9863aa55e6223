// The ranks among this process's children. Reports their exits to the engine and kills those that
// the engine names.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "tools/lathe/announce.h"
#include "tools/lathe/launch/supervise_client.h"
#include "tools/lathe/launch/supervisor.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {

// Upper bound of ranks on one machine, more than its devices. It stops a mistyped number from
// starting thousands of processes.
inline constexpr int kMaxRanks = 64;

// Main thread only. A kill request of the engine raises SIGCHLD to wake that thread.
class SupervisedRanks {
 public:
  // `ranks` maps names of children to ranks. `supervisor` and `announcer` must outlive this object.
  SupervisedRanks(SuperviseOptions options, std::map<std::string, int64_t> ranks,
                  Supervisor& supervisor, Announcer& announcer);

  // Both do nothing for a child that is not one of the ranks.
  void OnStarted(const std::string& name);
  void OnExit(const ChildExit& exit);

  void KillOnEngineRequest();

  // Has other groups take over what the group holds, which needs rank 0 here. Returns when the
  // group holds nothing, when the engine refuses or does not answer, after `timeout`, or at a stop
  // signal. Returns true if the group is out of service, so that EndDrain has to follow.
  bool Drain(absl::Duration timeout, Signals& signals);
  // Lets the group be used again once its ranks are back.
  void EndDrain();

 private:
  const std::map<std::string, int64_t> ranks_;
  Supervisor& supervisor_;
  Announcer& announcer_;
  SuperviseClient client_;
};

// Returns true if the rank ended only because another rank of its group was lost.
bool LostPeer(const ChildExit& exit);

}  // namespace lathe::cli
