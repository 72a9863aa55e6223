// The engine's heartbeat: declares workers dead that are silent or make no progress for too long.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "services/engine/dispatcher/dispatcher.h"

namespace lathe::engine {
namespace {

// 12 to 14 s. A period counts as silent if no message came since the last heartbeat.
constexpr int kMaxMissedHeartbeats = 6;
// Limit for a stream that has not sent its hello.
constexpr int kMaxHeartbeatsWithoutHello = 5;

v1::EngineMessage HeartbeatMessage(int64_t term) {
  v1::EngineMessage message;
  message.mutable_heartbeat()->set_term(term);
  return message;
}

v1::EngineMessage DieMessage(const std::string& reason) {
  v1::EngineMessage message;
  message.mutable_die()->set_reason(reason);
  return message;
}

}  // namespace

void Dispatcher::RecordHeartbeat(Worker& worker, const v1::WorkerHeartbeat& heartbeat) {
  if (heartbeat.is_busy() && heartbeat.progress() == worker.progress) return;
  worker.progress = heartbeat.progress();
  worker.idle_heartbeats = 0;
  worker.advanced_at = worker.heard_at;
}

void Dispatcher::SendHeartbeat() {
  const std::vector<Dead> dead = TakeDead();
  std::vector<std::shared_ptr<WorkerStream>> alive;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [rank, worker] : workers_) alive.push_back(worker.stream);
  }
  for (const auto& stream : alive) stream->Send({HeartbeatMessage(runtime_.term())});
  for (const Dead& one : dead) DeclareDead(one);
  RemoveEndedSenders();
  for (const auto& stream : StreamsWithoutHello()) {
    stream->End(absl::DeadlineExceededError("the first message, hello, did not come"));
  }
}

std::vector<std::shared_ptr<WorkerStream>> Dispatcher::StreamsWithoutHello() {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<WorkerStream>> mute;
  for (auto& [key, open] : streams_) {
    if (!open.has_said_hello && ++open.heartbeats > kMaxHeartbeatsWithoutHello)
      mute.push_back(open.stream);
  }
  return mute;
}

std::vector<Dispatcher::Dead> Dispatcher::TakeDead() {
  const int heartbeat_seconds = static_cast<int>(kHeartbeatPeriod / absl::Seconds(1));
  absl::MutexLock lock(&mu_);
  std::vector<Dead> dead;
  for (auto& [rank, worker] : workers_) {
    // A worker without recent messages only counts as silent, whatever its work does. A worker
    // without an epoch has no work yet and waits for its peers.
    if (++worker.missed_heartbeats == 1 && worker.epoch > 0) ++worker.idle_heartbeats;
    if (worker.missed_heartbeats > kMaxMissedHeartbeats) {
      dead.push_back(
          {rank, worker, LossCause::kSilent,
           absl::StrFormat("silent for %d s", worker.missed_heartbeats * heartbeat_seconds)});
    } else if (max_idle_heartbeats_ > 0 && worker.idle_heartbeats > max_idle_heartbeats_) {
      dead.push_back(
          {rank, worker, LossCause::kStuck,
           absl::StrFormat("no progress for %d s", worker.idle_heartbeats * heartbeat_seconds)});
    }
  }
  std::stable_sort(dead.begin(), dead.end(), [](const Dead& one, const Dead& other) {
    return one.worker.advanced_at < other.worker.advanced_at;
  });
  for (const Dead& one : dead) {
    EraseLocked(one.rank);
    runtime_.Post(WorkerDetached{.group = one.rank.first,
                                 .process_gone = true,
                                 .cause = one.cause,
                                 .how = one.how,
                                 .rank = one.rank.second});
  }
  return dead;
}

// A process that survives finds a new epoch. One that still receives messages ends by itself.
void Dispatcher::DeclareDead(const Dead& dead) {
  const auto& [group, rank] = dead.rank;
  const bool is_asked = supervisors_.Kill(group, rank, dead.worker.pid, dead.how);
  LogWarn("worker declared dead", {{"group", group},
                                   {"rank", rank},
                                   {"why", dead.how},
                                   {"killed", is_asked ? "asked" : "no supervisor"}});
  if (dead.cause == LossCause::kStuck) dead.worker.stream->Send({DieMessage(dead.how)});
  if (dead.cause == LossCause::kSilent || is_asked) {
    dead.worker.stream->End(
        absl::DeadlineExceededError("the worker was declared dead: " + dead.how));
  }
}

}  // namespace lathe::engine
