#include "services/engine/dispatcher/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/version.h"
#include "services/engine/dispatcher/report_decoder.h"

namespace lathe::engine {
namespace {

// A worker that sent a message within 4 s counts as alive and keeps its place.
constexpr int kMaxMissedHeartbeatsOfLiving = 1;

LossCause CauseOf(const v1::Leaving& leaving) {
  if (leaving.lost_peer()) return LossCause::kPeerGone;
  return leaving.has_failed() ? LossCause::kCrashed : LossCause::kEnded;
}

std::string ReleaseOf(const v1::Hello& hello) {
  return absl::StrFormat("version %s (protocol %d)", hello.lathe_version(), hello.protocol());
}

double SecondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

Dispatcher::Dispatcher(Runtime& runtime, std::string secret, absl::Duration stuck_after,
                       ProtocolRange protocol)
    : runtime_(runtime),
      secret_(std::move(secret)),
      protocol_(protocol),
      max_idle_heartbeats_(
          static_cast<int>(absl::Ceil(stuck_after, kHeartbeatPeriod) / kHeartbeatPeriod)),
      encoder_(runtime.bodies(), runtime.streams()),
      supervisors_(
          [this](EventBody event) { runtime_.Post(std::move(event)); },
          [this](const v1::SupervisorHello& hello) { return CheckPeer(hello, "supervisor"); },
          [this](const v1::DrainOwnGroup& wanted, Supervisors::DrainAnswer answer) {
            DrainGroupOfSupervisor(wanted, std::move(answer));
          }),
      heartbeat_("engine-beat", kHeartbeatPeriod, [this] { SendHeartbeat(); }) {}

grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>* Dispatcher::Attach(
    grpc::CallbackServerContext*) {
  std::shared_ptr<WorkerStream> stream = WorkerStream::Start(*this);
  absl::MutexLock lock(&mu_);
  return (streams_[stream.get()] = {stream}).stream.get();
}

void Dispatcher::DrainGroupOfSupervisor(const v1::DrainOwnGroup& wanted,
                                        Supervisors::DrainAnswer answer) {
  const std::string group = wanted.group();
  const bool is_draining = wanted.is_draining();
  runtime_.Call(
      DrainGroup{.group = group, .is_draining = is_draining, .actor = "engine"},
      [&runtime = runtime_, group, is_draining, answer = std::move(answer)](const Answer& decided) {
        v1::GroupDrain drain;
        drain.set_group(group);
        drain.set_is_draining(is_draining);
        if (decided.error) {
          drain.set_refusal(decided.error->message);
        } else if (is_draining) {
          const auto drains = runtime.GroupDrains();
          const auto found = drains.find(group);
          drain.set_left(found == drains.end() ? "its work" : found->second.left);
        }
        answer(std::move(drain));
      });
}

grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Dispatcher::Supervise(
    grpc::CallbackServerContext*) {
  return supervisors_.Start();
}

// A group's first entry in the map is its rank 0, if that is attached.
std::map<std::string, WorkerStatus> Dispatcher::Statuses() {
  absl::MutexLock lock(&mu_);
  std::map<std::string, WorkerStatus> statuses;
  for (const auto& [rank, worker] : workers_) {
    WorkerStatus& group =
        statuses.try_emplace(rank.first, WorkerStatus{.ready = worker.ready}).first->second;
    group.heartbeat_age_seconds =
        std::max(group.heartbeat_age_seconds, SecondsSince(worker.heard_at));
    group.progress_age_seconds =
        std::max(group.progress_age_seconds, SecondsSince(worker.advanced_at));
  }
  return statuses;
}

std::vector<v1::GroupStatus> Dispatcher::DescribeGroups() {
  absl::MutexLock lock(&mu_);
  std::vector<v1::GroupStatus> groups;
  for (const auto& [rank, worker] : workers_) {
    if (groups.empty() || groups.back().group() != rank.first) {
      groups.push_back(worker.group_status);
      groups.back().set_state(worker.ready ? "ready" : "loading");
    }
    *groups.back().add_ranks() = worker.rank_status;
  }
  return groups;
}

void Dispatcher::EndStreams() {
  std::map<const WorkerStream*, OpenStream> streams;
  {
    absl::MutexLock lock(&mu_);
    streams = streams_;
  }
  for (const auto& [key, open] : streams) {
    open.stream->End(absl::UnavailableError("the engine is stopping"));
  }
  supervisors_.EndStreams();
}

void Dispatcher::OnMessage(const std::shared_ptr<WorkerStream>& stream,
                           const v1::WorkerMessage& message) {
  const std::optional<RankKey> rank = RankOf(stream.get());
  if (rank && message.has_leaving()) return OnLeaving(stream, *rank, message.leaving());
  if (rank && !message.has_hello()) return OnReport(*rank, message);
  if (!message.has_hello()) {
    return stream->End(absl::FailedPreconditionError("the first message must be hello"));
  }
  if (rank) return stream->End(absl::FailedPreconditionError("a stream sends hello once"));
  absl::Status status = CheckHello(message.hello());
  if (status.ok()) status = CheckPlace(message.hello());
  if (!status.ok()) {
    LogWarn("worker refused", {{"group", message.hello().group()},
                               {"rank", message.hello().rank()},
                               {"error", status.message()}});
    return stream->End(status);
  }
  OnHello(stream, message.hello());
}

template <typename AnyHello>
absl::Status Dispatcher::CheckPeer(const AnyHello& hello, const char* who) const {
  if (!EqualInConstantTime(hello.secret(), secret_)) {
    return absl::UnauthenticatedError(
        absl::StrFormat("the %s's secret is not that of this data directory", who));
  }
  return CheckProtocol(
      {.name = absl::StrCat("the ", who),
       .version = hello.lathe_version(),
       .range = {.oldest = hello.oldest_protocol(), .newest = hello.protocol()}},
      {.name = "the engine", .version = std::string(kVersion), .range = protocol_});
}

absl::Status Dispatcher::CheckHello(const v1::Hello& hello) const {
  RETURN_IF_ERROR(CheckPeer(hello, "worker"));
  RETURN_IF_ERROR(CheckMesh(hello));
  if (hello.group().empty() || hello.process_id().empty()) {
    return absl::InvalidArgumentError("hello names no group or no process");
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::CheckPlace(const v1::Hello& hello) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckPeers(hello));
  const auto found = workers_.find({hello.group(), hello.rank()});
  if (found == workers_.end() || found->second.process_id == hello.process_id()) {
    return absl::OkStatus();
  }
  if (found->second.missed_heartbeats > kMaxMissedHeartbeatsOfLiving) return absl::OkStatus();
  if (hello.world() == 1) {
    return absl::UnavailableError(absl::StrFormat("group %s has a living worker, process %d",
                                                  hello.group(), found->second.pid));
  }
  return absl::UnavailableError(absl::StrFormat("group %s has a living rank %d, process %d",
                                                hello.group(), hello.rank(), found->second.pid));
}

// Remaining ranks of a group with another configuration must end first.
absl::Status Dispatcher::CheckPeers(const v1::Hello& hello) const {
  for (const auto& [rank, worker] : workers_) {
    if (rank.first != hello.group() || rank.second == hello.rank()) continue;
    const bool is_silent = worker.missed_heartbeats > kMaxMissedHeartbeatsOfLiving;
    const std::string peer =
        absl::StrFormat("%s rank %d", is_silent ? "silent" : "attached", rank.second);
    if (worker.mesh != ToMesh(hello)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("rank %d of group %s has mesh %s, but %s has %s", hello.rank(),
                          hello.group(), Describe(ToMesh(hello)), peer, Describe(worker.mesh)));
    }
    // Ranks pass commands and gradients to each other, in a form that is their release's own.
    if (worker.release != ReleaseOf(hello)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("rank %d of group %s has %s, but %s has %s", hello.rank(), hello.group(),
                          ReleaseOf(hello), peer, worker.release));
    }
    if (worker.group_status.base_model() != hello.base_model()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "rank %d of group %s has base model %s, but %s has %s", hello.rank(), hello.group(),
          hello.base_model(), peer, worker.group_status.base_model()));
    }
  }
  return absl::OkStatus();
}

void Dispatcher::OnHello(const std::shared_ptr<WorkerStream>& stream, const v1::Hello& hello) {
  Worker replaced;
  WorkerAttached attached = ToEvent(hello);
  attached.refusal = WhyOtherPlace(runtime_.checkpoint_dirs().Place(), hello);
  if (!attached.refusal.empty()) {
    LogWarn("a worker gets no work",
            {{"group", hello.group()}, {"rank", hello.rank()}, {"error", attached.refusal}});
  }
  {
    absl::MutexLock lock(&mu_);
    const auto open = streams_.find(stream.get());
    if (open != streams_.end()) open->second.has_said_hello = true;
    std::unique_ptr<GroupSender>& sender = senders_[hello.group()];
    if (!sender) sender = std::make_unique<GroupSender>();
    Worker& worker = workers_[{hello.group(), hello.rank()}];
    replaced = std::exchange(worker, Worker{});
    worker.stream = stream;
    worker.stream_id = attached.stream_id = ++num_streams_;
    worker.process_id = hello.process_id();
    worker.pid = hello.pid();
    worker.version_address = hello.version_address();
    worker.mesh = attached.mesh;
    worker.release = ReleaseOf(hello);
    worker.heard_at = worker.advanced_at = std::chrono::steady_clock::now();
    worker.ready = hello.has_ready();
    worker.group_status = ToGroupStatus(hello);
    worker.rank_status = ToRankStatus(hello);
    // Posted under the lock, so that the core sees streams in the order in which they took their
    // places.
    if (replaced.stream && replaced.stream != stream) {
      runtime_.Post(WorkerDetached{.group = hello.group(), .rank = hello.rank()});
    }
    runtime_.Post(std::move(attached));
  }
  if (replaced.stream && replaced.stream != stream) {
    replaced.stream->End(absl::AbortedError("another worker attached to the group"));
  }
  LogInfo("worker attached", {{"group", hello.group()},
                              {"rank", hello.rank()},
                              {"device", hello.device()},
                              {"epoch", hello.epoch()},
                              {"process_id", hello.process_id()}});
}

void Dispatcher::OnReport(const RankKey& rank, const v1::WorkerMessage& message) {
  UpdateStatus(rank, message);
  if (rank.second > 0) return;
  const std::string& group = rank.first;
  switch (message.message_case()) {
    case v1::WorkerMessage::kReady:
      LogInfo("worker ready", {{"group", group}, {"base_model", message.ready().model().name()}});
      runtime_.Post(WorkerReady{.group = group, .model = ToReady(message.ready().model())});
      return;
    case v1::WorkerMessage::kStarted:
      runtime_.Post(ToEvent(group, message.epoch(), message.started()));
      return;
    case v1::WorkerMessage::kDone:
      return OnDone(group, message.epoch(), message.done());
    case v1::WorkerMessage::kSampleProgress:
      runtime_.streams().Push(ToTokens(message.sample_progress()));
      if (message.sample_progress().ended().empty()) return;
      runtime_.Post(ToEvent(group, message.epoch(), message.sample_progress()));
      return;
    case v1::WorkerMessage::kVersionLoaded:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_loaded()));
      return;
    case v1::WorkerMessage::kVersionServed:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_served()));
      return;
    case v1::WorkerMessage::kVersionFailed:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_failed()));
      return;
    case v1::WorkerMessage::kSnapshotDone:
      runtime_.Post(ToEvent(group, message.epoch(), message.snapshot_done()));
      return;
    case v1::WorkerMessage::kVersionSaved:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_saved()));
      return;
    default:
      return;  // progress, heartbeats and what only the status shows
  }
}

void Dispatcher::OnDone(const std::string& group, int64_t epoch, const v1::OperationDone& done) {
  FailPoint("engine.result.received");
  std::string result_id = runtime_.results().Hold(done.result().SerializeAsString());
  runtime_.Post(ToEvent(group, epoch, done, std::move(result_id)));
}

void Dispatcher::UpdateStatus(const RankKey& rank, const v1::WorkerMessage& message) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(rank);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.missed_heartbeats = 0;
  worker.heard_at = std::chrono::steady_clock::now();
  if (message.has_ready()) {
    worker.ready = true;
    worker.group_status.set_base_model(message.ready().model().name());
    worker.group_status.clear_progress();
  } else if (message.has_progress() && message.progress().bytes_total() > 0) {
    const v1::Progress& progress = message.progress();
    worker.group_status.set_progress(
        absl::StrFormat("%d %% of %.1f GB", 100 * progress.bytes_loaded() / progress.bytes_total(),
                        static_cast<double>(progress.bytes_total()) / 1e9));
  } else if (message.has_heartbeat()) {
    const v1::WorkerHeartbeat& heartbeat = message.heartbeat();
    RecordHeartbeat(worker, heartbeat);
    *worker.group_status.mutable_counters() = heartbeat.counters();
    if (heartbeat.has_memory()) *worker.rank_status.mutable_memory() = heartbeat.memory();
  }
}

void Dispatcher::OnLeaving(const std::shared_ptr<WorkerStream>& stream, const RankKey& rank,
                           const v1::Leaving& leaving) {
  LogInfo("worker leaves",
          {{"group", rank.first}, {"rank", rank.second}, {"reason", leaving.reason()}});
  {
    absl::MutexLock lock(&mu_);
    if (FindRank(stream.get()) != rank) return;
    EraseLocked(rank);
    runtime_.Post(WorkerDetached{.group = rank.first,
                                 .process_gone = true,
                                 .cause = CauseOf(leaving),
                                 .how = leaving.reason(),
                                 .rank = rank.second});
  }
  stream->End(absl::OkStatus());
}

void Dispatcher::OnClosed(const std::shared_ptr<WorkerStream>& stream) {
  absl::MutexLock lock(&mu_);
  const std::optional<RankKey> rank = FindRank(stream.get());
  streams_.erase(stream.get());
  if (!rank) return;
  EraseLocked(*rank);
  runtime_.Post(WorkerDetached{.group = rank->first, .rank = rank->second});
  LogWarn("worker detached", {{"group", rank->first}, {"rank", rank->second}});
}

std::optional<Dispatcher::RankKey> Dispatcher::RankOf(const WorkerStream* stream) {
  absl::MutexLock lock(&mu_);
  return FindRank(stream);
}

std::optional<Dispatcher::RankKey> Dispatcher::FindRank(const WorkerStream* stream) const {
  for (const auto& [rank, worker] : workers_) {
    if (worker.stream.get() == stream) return rank;
  }
  return std::nullopt;
}

void Dispatcher::EraseLocked(const RankKey& rank) {
  workers_.erase(rank);
  const std::string& group = rank.first;
  const auto next = workers_.lower_bound({group, 0});
  if (next != workers_.end() && next->first.first == group) return;
  const auto sender = senders_.find(group);
  if (sender == senders_.end()) return;
  sender->second->Close();
  closed_senders_.push_back(std::move(sender->second));
  senders_.erase(sender);
}

}  // namespace lathe::engine
