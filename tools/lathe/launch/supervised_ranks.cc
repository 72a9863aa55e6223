#include "tools/lathe/launch/supervised_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"

namespace lathe::cli {

SupervisedRanks::SupervisedRanks(SuperviseOptions options, std::map<std::string, int64_t> ranks,
                                 Supervisor& supervisor, Announcer& announcer)
    : ranks_(std::move(ranks)),
      supervisor_(supervisor),
      announcer_(announcer),
      client_(std::move(options), [] { kill(getpid(), SIGCHLD); }) {}

void SupervisedRanks::OnStarted(const std::string& name) {
  const auto found = ranks_.find(name);
  if (found != ranks_.end()) client_.OnStarted(found->second, supervisor_.Pid(name));
}

void SupervisedRanks::OnExit(const ChildExit& exit) {
  const auto found = ranks_.find(exit.name);
  if (found != ranks_.end()) client_.OnExit(found->second, exit);
}

void SupervisedRanks::KillOnEngineRequest() {
  for (const v1::KillRank& wanted : client_.TakeKills()) {
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
      return entry.second == wanted.rank();
    });
    if (found == ranks_.end()) continue;
    announcer_.Say(found->first, absl::StrCat("is killed for the engine: ", wanted.reason()));
    supervisor_.Kill(found->first, static_cast<pid_t>(wanted.pid()));
  }
}

bool LostPeer(const ChildExit& exit) {
  return WIFEXITED(exit.wait_status) && WEXITSTATUS(exit.wait_status) == kExitPeerGone;
}

}  // namespace lathe::cli
