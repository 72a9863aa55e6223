// The ranks among the children of this process: the engine hears how they end, and says whom to
// kill.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "tools/lathe/announce.h"
#include "tools/lathe/supervise_client.h"
#include "tools/lathe/supervisor.h"

namespace lathe::cli {

// No machine has as many devices. A slip of the finger would fill it with processes.
inline constexpr int kMaxRanks = 64;

// Main thread only, which a kill wakes by SIGCHLD.
class SupervisedRanks {
 public:
  // `ranks`: by the names of the children. Both references must outlive it.
  SupervisedRanks(SuperviseOptions options, std::map<std::string, int64_t> ranks,
                  Supervisor& supervisor, Announcer& announcer);

  // For a child that is none of the ranks these do nothing.
  void OnStarted(const std::string& name);
  void OnExit(const ChildExit& exit);

  void KillWhomTheEngineWants();

 private:
  const std::map<std::string, int64_t> ranks_;
  Supervisor& supervisor_;
  Announcer& announcer_;
  SuperviseClient client_;
};

// Whether it ended only because another rank of its group had gone.
bool LostPeer(const ChildExit& exit);

}  // namespace lathe::cli
