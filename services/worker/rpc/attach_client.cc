#include "services/worker/rpc/attach_client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/time/clock.h"
#include "services/worker/rpc/attach_stream.h"

namespace lathe::worker {
namespace {

// Time that the engine has to end a stream after Leaving.
constexpr absl::Duration kLastMessageTime = absl::Seconds(1);

}  // namespace

AttachClient::AttachClient(AttachOptions options, WorkerIdentity identity, ExecutorPort& executor,
                           std::function<void(const std::string& reason)> on_die,
                           std::function<void(const RendezvousPoint&)> on_rendezvous)
    : options_(std::move(options)),
      dialer_(options_.engine_tls),
      on_die_(std::move(on_die)),
      protocol_(std::move(identity), executor, std::move(on_rendezvous)) {}

AttachClient::~AttachClient() { Stop(); }

void AttachClient::Start() {
  thread_ = std::make_unique<NamedThread>("attach", [this] { Run(); });
}

void AttachClient::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_ != nullptr) thread_->Join();
}

void AttachClient::Leave(const std::string& reason, LeaveCause cause) {
  absl::MutexLock lock(&mu_);
  leaving_.emplace();
  leaving_->set_reason(reason);
  leaving_->set_has_failed(cause == LeaveCause::kCannotWork);
  leaving_->set_lost_peer(cause == LeaveCause::kPeerGone);
  woken_ = true;
}

void AttachClient::OnReport(ReportEvent event) {
  absl::MutexLock lock(&mu_);
  reports_.push_back(std::move(event));
}

void AttachClient::OnStateChanged() {
  absl::MutexLock lock(&mu_);
  state_changed_ = true;
}

void AttachClient::Run() {
  absl::Time outage_began = SteadyNow();
  for (size_t attempt = 0; !stopping() && !has_left(); ++attempt) {
    last_heard_ = absl::InfinitePast();
    Serve(options_.engine_addresses[attempt % options_.engine_addresses.size()], outage_began);
    if (last_heard_ != absl::InfinitePast()) {
      outage_began = SteadyNow();
      outage_is_logged_ = false;
    }
    if (!stopping() && !has_left()) Pause(outage_began);
  }
}

absl::Time AttachClient::GiveUpAt(absl::Time began, absl::Time outage_began) const {
  if (last_heard_ != absl::InfinitePast()) return last_heard_ + options_.silence_limit;
  if (options_.engine_addresses.size() == 1) return began + options_.silence_limit;
  return began + std::clamp((began - outage_began) / 4, options_.min_first_answer,
                            std::max(options_.min_first_answer, options_.silence_limit));
}

void AttachClient::Serve(const std::string& address, absl::Time outage_began) {
  AbsorbReports();
  // Without a secret, the engine refuses the worker, which tries again.
  AttachStream stream(dialer_.Dial(address),
                      protocol_.BeginStream(ReadSecretFile(options_.secret_path)),
                      [this] { Wake(); });
  const absl::Time began = SteadyNow();
  absl::Time next_heartbeat = began + options_.heartbeat_interval;
  while (!stream.IsOver() && !MustEnd()) {
    SendLastMessage(SteadyNow());
    if (!Exchange(stream)) return;
    const absl::Time now = SteadyNow();
    const absl::Time give_up = GiveUpAt(began, outage_began);
    if (now >= give_up) {
      LogWarn("engine is silent", {{"address", address}});
      return;
    }
    if (now >= next_heartbeat) {
      protocol_.QueueHeartbeat();
      next_heartbeat = now + options_.heartbeat_interval;
      continue;
    }
    WaitUntil(std::min(give_up, next_heartbeat));
  }
  if (stopping() || has_left() || std::exchange(outage_is_logged_, true)) return;
  const absl::Status status = stream.Finish();
  LogWarn("no stream to the engine", {{"address", address}, {"error", status.message()}});
}

// Handles all messages that can be read or written now. Returns false if the stream must be left.
bool AttachClient::Exchange(AttachStream& stream) {
  AbsorbReports();
  while (std::optional<lathe::v1::EngineMessage> message = stream.TakeMessage()) {
    last_heard_ = SteadyNow();
    switch (protocol_.Receive(*std::move(message))) {
      case AttachProtocol::Verdict::kContinue:
        break;
      case AttachProtocol::Verdict::kReconnect:
        LogWarn("the worker leaves this engine and dials in again",
                {{"error", protocol_.reason()}});
        return false;
      case AttachProtocol::Verdict::kDie:
        LogError("the engine ordered this process to end", {{"error", protocol_.reason()}});
        on_die_(protocol_.reason());
        return false;
    }
  }
  while (stream.CanWrite()) {
    std::optional<lathe::v1::WorkerMessage> message = protocol_.PopOutgoing();
    if (!message.has_value()) break;
    const bool is_result = message->has_done();
    if (is_result) FailPoint("worker.report.before");
    stream.Write(*std::move(message));
    if (is_result) FailPoint("worker.report.sent");
  }
  return true;
}

void AttachClient::AbsorbReports() {
  std::deque<ReportEvent> reports;
  bool state_changed = false;
  {
    absl::MutexLock lock(&mu_);
    reports.swap(reports_);
    state_changed = std::exchange(state_changed_, false);
    woken_ = false;
  }
  if (state_changed) protocol_.StateChanged();
  for (const ReportEvent& event : reports) protocol_.Absorb(event);
}

void AttachClient::Pause(absl::Time outage_began) {
  const absl::Duration outage = SteadyNow() - outage_began;
  const absl::Duration backoff =
      std::clamp(outage / 10, options_.min_backoff, options_.max_backoff);
  const double share = 0.5 + 0.5 * static_cast<double>(RandomUint64() % 1024) / 1024;
  const absl::Time until = SteadyNow() + backoff * share;
  while (!stopping() && SteadyNow() < until) {
    AbsorbReports();
    WaitUntil(until);
  }
}

void AttachClient::Wake() {
  absl::MutexLock lock(&mu_);
  woken_ = true;
}

void AttachClient::WaitUntil(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  // If the wall clock is set back meanwhile, the engine's next heartbeat ends the wait.
  mu_.AwaitWithTimeout(absl::Condition(this, &AttachClient::HasUpdates), deadline - SteadyNow());
}

bool AttachClient::HasUpdates() const {
  return woken_ || (stopping_ && !has_left_) || state_changed_ || !reports_.empty();
}

void AttachClient::SendLastMessage(absl::Time now) {
  std::optional<lathe::v1::Leaving> leaving;
  {
    absl::MutexLock lock(&mu_);
    if (!leaving_.has_value()) return;
    leaving = std::exchange(leaving_, std::nullopt);
    has_left_ = true;
  }
  last_message_until_ = now + kLastMessageTime;
  protocol_.QueueLeaving(*leaving);
}

bool AttachClient::MustEnd() const {
  absl::MutexLock lock(&mu_);
  return stopping_ && !leaving_.has_value() && (!has_left_ || SteadyNow() >= last_message_until_);
}

bool AttachClient::has_left() const {
  absl::MutexLock lock(&mu_);
  return has_left_;
}

bool AttachClient::stopping() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

}  // namespace lathe::worker
