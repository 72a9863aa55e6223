#include "tools/lathe/launch/supervised_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/config/option_set.h"
#include "libs/common/time/clock.h"

namespace lathe::cli {
namespace {

// Time between two questions how far a drain is.
constexpr absl::Duration kDrainPeriod = absl::Milliseconds(500);
// An engine of an earlier release does not answer.
constexpr absl::Duration kAnswerPatience = absl::Seconds(5);

}  // namespace

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

bool SupervisedRanks::Drain(absl::Duration timeout, Signals& signals) {
  const absl::Time began = SteadyNow();
  bool is_draining = false;
  announcer_.Say("drain", "other groups take over what the group holds");
  while (SteadyNow() - began < timeout) {
    client_.AskDrain(true);
    if (signals.Wait(kDrainPeriod) == SignalEvent::kStop) {
      announcer_.Say("drain", "ended by a second signal");
      return is_draining;
    }
    KillOnEngineRequest();
    const std::optional<v1::GroupDrain> answer = client_.TakeDrain();
    if (!answer.has_value()) {
      if (is_draining || SteadyNow() - began < kAnswerPatience) continue;
      announcer_.Say("drain", "the engine does not answer");
      return true;  // it may have heard the question
    }
    if (!answer->refusal().empty()) {
      announcer_.Say("drain", absl::StrCat("not possible: ", answer->refusal()));
      return is_draining;
    }
    is_draining = true;
    if (!answer->left().empty()) continue;
    announcer_.Say("drain", "the group holds nothing");
    return true;
  }
  announcer_.Say("drain", "not complete in time");
  return is_draining;
}

void SupervisedRanks::EndDrain() {
  client_.AskDrain(false);
  const absl::Time began = SteadyNow();
  while (SteadyNow() - began < kAnswerPatience) {
    const std::optional<v1::GroupDrain> answer = client_.TakeDrain();
    if (answer.has_value() && !answer->is_draining()) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
  announcer_.Say("drain", "the engine did not confirm its end: `lathe group resume` ends it");
}

bool LostPeer(const ChildExit& exit) {
  return WIFEXITED(exit.wait_status) && WEXITSTATUS(exit.wait_status) == kExitPeerGone;
}

}  // namespace lathe::cli
