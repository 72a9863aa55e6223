#include "tools/lathe/launch/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/config/option_set.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/launch/http_get.h"
#include "tools/lathe/launch/start_failure.h"

namespace lathe::cli {
namespace {

constexpr char kEngine[] = "engine";
constexpr char kGateway[] = "gateway";
constexpr char kHealthPath[] = "/api/v1/healthz";

constexpr absl::Duration kReadinessPoll = absl::Milliseconds(100);
constexpr absl::Duration kStatusTimeout = absl::Seconds(1);
// Age from which a worker counts as ready. The engine may still report a group as ready just after
// one of its workers died.
constexpr absl::Duration kMinWorkerAge = absl::Milliseconds(300);
constexpr absl::Duration kStopGrace = absl::Seconds(10);
constexpr absl::Duration kFailureGrace = absl::Seconds(2);
constexpr int kMaxFirstStarts = 3;
// Limit for ranks that end because they lost another rank. It exceeds kMaxFirstStarts so that a
// rank that fails for its own reason reaches its limit first and is the one reported.
constexpr int kMaxFirstLosses = 5;

std::map<std::string, int64_t> RanksByName(const std::vector<std::string>& workers) {
  std::map<std::string, int64_t> ranks;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    ranks[workers[rank]] = static_cast<int64_t>(rank);
  }
  return ranks;
}

// Returns null if the engine does not know the group.
const v1::GroupStatus* FindGroup(const v1::GetStatusResponse& status, const std::string& name) {
  const auto found =
      std::find_if(status.groups().begin(), status.groups().end(),
                   [&](const v1::GroupStatus& group) { return group.group() == name; });
  return found == status.groups().end() ? nullptr : &*found;
}

}  // namespace

Launcher::Launcher(const LaunchPlan& plan, Signals& signals, Announcer& announcer)
    : plan_(plan), signals_(signals), announcer_(announcer), admin_(plan.data_dir) {
  for (const GroupPlan& group : plan.groups) {
    ranks_.push_back(std::make_unique<SupervisedRanks>(
        SuperviseOptions{.addresses = {plan.data_dir.SocketAddress("worker")},
                         .secret_file = plan.data_dir.socket_dir() / "secret",
                         .group = group.name},
        RanksByName(group.workers), supervisor_, announcer));
  }
}

absl::Status Launcher::Run() {
  const absl::Status served = Serve();
  if (served.ok()) Drain();
  StopAll(served.ok() ? kStopGrace : kFailureGrace);
  unlink(plan_.data_dir.pids().c_str());
  return served;
}

absl::Status Launcher::Serve() {
  for (const ChildSpec& child : plan_.children) {
    RETURN_IF_ERROR(supervisor_.Start(child));
    for (const auto& ranks : ranks_) ranks->OnStarted(child.name);
  }
  RETURN_IF_ERROR(WritePids());
  while (signals_.Wait(NextWait()) != SignalEvent::kStop) {
    for (const auto& ranks : ranks_) ranks->KillOnEngineRequest();
    supervisor_.TrimLogs();
    RETURN_IF_ERROR(HandleDeaths());
    RETURN_IF_ERROR(Restart());
    RETURN_IF_ERROR(CheckReadiness());
  }
  return absl::OkStatus();
}

absl::Duration Launcher::NextWait() const {
  const absl::Duration poll = supervisor_.AllReady() ? kTrimPeriod : kReadinessPoll;
  return std::min(poll, supervisor_.UntilNextRestart());
}

absl::Status Launcher::HandleDeaths() {
  for (const ChildExit& exit : supervisor_.Reap()) {
    for (const auto& ranks : ranks_) ranks->OnExit(exit);
    if (!is_announced_) RETURN_IF_ERROR(CheckFirstStart(exit));
    if (LostPeer(exit)) {
      if (exit.early_deaths == kMaxFirstStarts) {
        announcer_.Say(exit.name, absl::StrCat("has lost another rank ", exit.early_deaths,
                                               " times before the ranks were ready; its log is ",
                                               LogPath(exit.name).string()));
      }
      continue;  // usually the lost rank's own exit is printed
    }
    announcer_.Say(exit.name,
                   absl::StrCat("died (", DescribeExit(exit.wait_status),
                                "), is started again; its log is ", LogPath(exit.name).string()));
  }
  return absl::OkStatus();
}

std::filesystem::path Launcher::LogPath(const std::string& name) const {
  return plan_.data_dir.logs() / absl::StrCat(name, ".log");
}

const GroupPlan* Launcher::GroupOf(const std::string& child) const {
  for (const GroupPlan& group : plan_.groups) {
    const auto& workers = group.workers;
    if (std::find(workers.begin(), workers.end(), child) != workers.end()) return &group;
  }
  return nullptr;
}

absl::Status Launcher::CheckFirstStart(const ChildExit& exit) {
  const int most = LostPeer(exit) ? kMaxFirstLosses : kMaxFirstStarts;
  const bool may_go_on = ExitReason(exit.wait_status).empty() && exit.early_deaths < most;
  if (exit.was_ready || may_go_on) return absl::OkStatus();
  const absl::Status failure = StartFailure(exit, supervisor_, LogPath(exit.name));
  const GroupPlan* const group = GroupOf(exit.name);
  if (group == nullptr) return failure;
  if (!failed_models_.insert(group->model).second) return absl::OkStatus();
  if (failed_models_.size() == plan_.models.size()) return failure;
  announcer_.Say("failed", absl::StrCat(plan_.models[group->model].name,
                                        " is not served: ", std::string(failure.message())));
  return absl::OkStatus();
}

absl::Status Launcher::Restart() {
  ASSIGN_OR_RETURN(const std::vector<std::string> started, supervisor_.RestartDue());
  for (const std::string& name : started) {
    for (const auto& ranks : ranks_) ranks->OnStarted(name);
  }
  return started.empty() ? absl::OkStatus() : WritePids();
}

absl::Status Launcher::CheckReadiness() {
  if (supervisor_.AllReady()) return absl::OkStatus();
  CheckEngineAndWorkers();
  if (supervisor_.IsReady(kEngine) && !has_key_) {
    ASSIGN_OR_RETURN(is_new_key_, EnsureAdminKey(plan_.data_dir));
    has_key_ = true;
  }
  if (!supervisor_.IsReady(kGateway) && supervisor_.Age(kGateway) > absl::ZeroDuration() &&
      GatewayAnswers()) {
    supervisor_.MarkReady(kGateway);
  }
  CheckFailedModels();
  if (IsComplete() && !is_announced_) Announce();
  return absl::OkStatus();
}

// Under TLS, a request may need a client certificate, so an accepted connection is enough: the
// gateway listens only once it can serve.
bool Launcher::GatewayAnswers() const {
  return plan_.has_tls ? Accepts(plan_.listen) : AnswersOk(plan_.listen, kHealthPath);
}

bool Launcher::IsReady(const GroupPlan& group) const {
  return std::all_of(group.workers.begin(), group.workers.end(),
                     [this](const std::string& name) { return supervisor_.IsReady(name); });
}

bool Launcher::IsReady(size_t model) const {
  return std::all_of(plan_.groups.begin(), plan_.groups.end(), [&](const GroupPlan& group) {
    return group.model != model || IsReady(group);
  });
}

bool Launcher::IsComplete() const {
  if (!supervisor_.IsReady(kEngine) || !supervisor_.IsReady(kGateway)) return false;
  return std::all_of(plan_.groups.begin(), plan_.groups.end(), [&](const GroupPlan& group) {
    return IsReady(group) || failed_models_.contains(group.model);
  });
}

void Launcher::CheckEngineAndWorkers() {
  const bool all_are_ready = std::all_of(plan_.groups.begin(), plan_.groups.end(),
                                         [this](const GroupPlan& one) { return IsReady(one); });
  if (supervisor_.IsReady(kEngine) && all_are_ready) return;
  if (supervisor_.Age(kEngine) == absl::ZeroDuration()) return;
  const auto status = admin_.GetStatus(kStatusTimeout);
  if (!status.ok()) return;
  supervisor_.MarkReady(kEngine);
  for (const GroupPlan& group : plan_.groups) {
    if (const auto* const found = FindGroup(*status, group.name)) CheckGroup(group, *found);
  }
  RemoveLeftovers(*status);
  if (!is_announced_) ShowLoading(*status);
}

void Launcher::ShowLoading(const v1::GetStatusResponse& status) {
  for (const GroupPlan& group : plan_.groups) {
    const v1::GroupStatus* const found = FindGroup(status, group.name);
    if (found == nullptr || found->progress().empty()) continue;
    const std::string name = plan_.models.size() > 1 ? plan_.models[group.model].name + " " : "";
    return announcer_.Loading(name + found->progress());
  }
}

void Launcher::CheckFailedModels() {
  for (auto it = failed_models_.begin(); it != failed_models_.end();) {
    const size_t model = *it++;
    if (!IsReady(model)) continue;
    announcer_.Say("model", plan_.models[model].name + " is served now");
    failed_models_.erase(model);
  }
}

void Launcher::RemoveLeftovers(const v1::GetStatusResponse& status) {
  for (const v1::GroupStatus& left : status.groups()) {
    const std::string& base_model = left.base_model();
    const bool is_ours =
        std::any_of(plan_.groups.begin(), plan_.groups.end(),
                    [&](const GroupPlan& group) { return group.name == left.group(); });
    const bool may_be_gone = left.ranks_size() == 0 && !base_model.empty();
    if (is_ours || !may_be_gone || !IsPlannedName(left.group(), base_model)) continue;
    const auto model = std::find_if(plan_.models.begin(), plan_.models.end(),
                                    [&](const ModelFolder& one) { return one.name == base_model; });
    const bool goes_on = model != plan_.models.end();
    if (goes_on && !IsReady(static_cast<size_t>(model - plan_.models.begin()))) continue;
    const absl::Status removed = admin_.RemoveGroup(left.group());
    if (!removed.ok()) {
      announcer_.Say("warning", absl::StrCat("group ", left.group(),
                                             " of an earlier start cannot be removed: ",
                                             std::string(removed.message())));
    } else if (!goes_on) {
      announcer_.Say("warning",
                     absl::StrCat(base_model,
                                  " was served from this data directory and is not any more; its "
                                  "checkpoints stay, and its models until their sessions end"));
    }
  }
}

void Launcher::CheckGroup(const GroupPlan& group, const v1::GroupStatus& group_status) {
  const bool all_are_old = std::all_of(
      group.workers.begin(), group.workers.end(),
      [this](const std::string& name) { return supervisor_.Age(name) > kMinWorkerAge; });
  if (group_status.state() != "ready" || !all_are_old) return;
  for (const std::string& name : group.workers) supervisor_.MarkReady(name);
}

void Launcher::Announce() {
  is_announced_ = true;
  for (const size_t model : failed_models_) {
    announcer_.Say("warning", absl::StrCat(plan_.models[model].name,
                                           " is not served yet; its workers are started again and "
                                           "again, `lathe status` says how they end"));
  }
  const absl::StatusOr<std::string> ticket = admin_.CreateTicket();
  announcer_.Ready(plan_, is_new_key_, ticket.value_or(""));
}

absl::Status Launcher::WritePids() const {
  Json pids = {{"up", getpid()}};
  for (const ChildSpec& child : plan_.children) pids[child.name] = supervisor_.Pid(child.name);
  return WriteFileAtomically(plan_.data_dir.pids(), ToJsonText(pids) + "\n", 0600);
}

void Launcher::Drain() {
  if (!supervisor_.IsReady(kEngine)) return;
  announcer_.Say("drain", absl::StrCat("finishing accepted work, at most ",
                                       absl::FormatDuration(plan_.drain_timeout),
                                       "; Ctrl-C again stops at once"));
  grpc::ClientContext context;
  absl::StatusOr<v1::DrainResponse> drained = absl::UnknownError("not drained");
  absl::Notification done;
  const NamedThread thread("drain", [&] {
    drained = admin_.Drain(plan_.drain_timeout, context);
    done.Notify();
  });
  while (!done.HasBeenNotified()) {
    if (signals_.Wait(kReadinessPoll) == SignalEvent::kStop) context.TryCancel();
    supervisor_.Reap();
  }
  ReportDrained(drained);
}

void Launcher::ReportDrained(const absl::StatusOr<v1::DrainResponse>& drained) {
  if (!drained.ok()) {
    announcer_.Say("drain",
                   absl::StrCat("not finished: ", std::string(drained.status().message())));
    return;
  }
  if (drained->pending_requests() > 0) {
    announcer_.Say("drain", absl::StrCat(drained->pending_requests(),
                                         " requests are not finished; they stay accepted"));
  }
  for (const std::string& model_id : drained->unsaved_model_ids()) {
    announcer_.Say("unsaved", absl::StrCat("model ", model_id, " has steps that were not saved"));
  }
}

void Launcher::StopAll(absl::Duration grace) {
  // Stops callers before the processes that they call.
  supervisor_.Stop({kGateway}, grace);
  std::vector<std::string> workers;
  for (const GroupPlan& group : plan_.groups) {
    workers.insert(workers.end(), group.workers.begin(), group.workers.end());
  }
  supervisor_.Stop(workers, grace);
  supervisor_.Stop({kEngine}, grace);
  announcer_.Say("stopped", plan_.data_dir.path().string());
}

}  // namespace lathe::cli
