#include "services/engine/dispatcher/supervisors.h"

#include <grpcpp/support/server_callback.h>
#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/logging/logging.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/outgoing_messages.h"

namespace lathe::engine {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

// Returns true for the exit codes of a process that was ordered to stop.
bool IsOrderly(int64_t exit_code) { return exit_code == 0 || exit_code == kExitTemporary; }

}  // namespace

LossCause CauseOf(const v1::RankExited& exited) {
  switch (exited.signal()) {
    case 0:
      if (exited.was_asked()) return LossCause::kEnded;
      if (exited.exit_code() == kExitPeerGone) return LossCause::kPeerGone;
      return IsOrderly(exited.exit_code()) ? LossCause::kEnded : LossCause::kCrashed;
    case SIGKILL:
      if (exited.was_asked()) return LossCause::kEnded;
      return exited.is_out_of_memory() ? LossCause::kOutOfMemory : LossCause::kKilled;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return exited.was_asked() ? LossCause::kEnded : LossCause::kKilled;
    default:  // a crash: no command sends other signals
      return LossCause::kCrashed;
  }
}

std::string DescribeEnd(const v1::RankExited& exited) {
  if (exited.signal() == 0) return absl::StrCat("exit code ", exited.exit_code());
  return absl::StrCat("signal ", exited.signal(),
                      exited.is_out_of_memory() ? ", the machine was out of memory" : "");
}

// The stream of one supervisor. It keeps itself alive until gRPC is done with it.
class Supervisors::Stream final
    : public grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>,
      public std::enable_shared_from_this<Supervisors::Stream> {
 public:
  explicit Stream(Supervisors& owner) : owner_(owner) {}

  void Begin() { StartRead(&incoming_); }

  void Send(v1::SupervisorCommand command) {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    if (const auto* next = outgoing_.Add(std::move(command))) StartWrite(next);
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mu_);
      if (std::exchange(ended_, true)) return;
    }
    Finish(ToGrpcStatus(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    const absl::Status status = owner_.OnMessage(*this, incoming_);
    if (!status.ok()) return End(status);
    absl::MutexLock lock(&mu_);
    if (!ended_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the stream broke"));
    absl::MutexLock lock(&mu_);
    const auto* next = outgoing_.Written();
    if (next != nullptr && !ended_) StartWrite(next);
  }

  void OnCancel() override { End(absl::CancelledError("the supervisor left")); }
  void OnDone() override { owner_.OnClosed(*this); }

  // Accessed by gRPC's reading thread only.
  bool is_known = false;

 private:
  Supervisors& owner_;
  v1::SupervisorMessage incoming_;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  OutgoingMessages<v1::SupervisorCommand> outgoing_ ABSL_GUARDED_BY(mu_);
};

grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Supervisors::Start() {
  const auto stream = std::make_shared<Stream>(*this);
  {
    absl::MutexLock lock(&mu_);
    streams_[stream.get()] = stream;
  }
  stream->Begin();
  return stream.get();
}

void Supervisors::EndStreams() {
  std::map<const Stream*, std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mu_);
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    stream->End(absl::UnavailableError("the engine is stopping"));
  }
}

bool Supervisors::Kill(const std::string& group, int64_t rank, int64_t pid,
                       const std::string& reason) {
  std::shared_ptr<Stream> parent;
  {
    absl::MutexLock lock(&mu_);
    const auto found = ranks_.find({group, rank});
    if (found == ranks_.end() || found->second.pid != pid) return false;
    parent = found->second.parent;
  }
  v1::SupervisorCommand command;
  v1::KillRank* const kill = command.mutable_kill();
  kill->set_group(group);
  kill->set_rank(rank);
  kill->set_pid(pid);
  kill->set_reason(reason);
  parent->Send(std::move(command));
  return true;
}

absl::Status Supervisors::OnMessage(Stream& stream, const v1::SupervisorMessage& message) {
  if (message.has_hello()) {
    const absl::Status status = check_(message.hello());
    if (!status.ok()) LogWarn("supervisor refused", {{"error", status.message()}});
    stream.is_known = status.ok();
    return status;
  }
  if (!stream.is_known) {
    return absl::FailedPreconditionError("the first message must be hello");
  }
  if (message.has_started()) OnStarted(stream, message.started());
  if (message.has_exited()) OnExited(message.exited());
  if (message.has_drain()) OnDrain(stream, message.drain());
  return absl::OkStatus();
}

void Supervisors::OnStarted(Stream& stream, const v1::RankStarted& started) {
  absl::MutexLock lock(&mu_);
  ranks_[{started.group(), started.rank()}] = {stream.shared_from_this(), started.pid()};
}

void Supervisors::OnExited(const v1::RankExited& exited) {
  post_(WorkerExited{
      .group = exited.group(),
      .pid = exited.pid(),
      .cause = CauseOf(exited),
      .how = DescribeEnd(exited),
      .restart_in = exited.has_restart_in_ms() ? exited.restart_in_ms() * kNanosPerMs : -1,
      .rank = exited.rank()});
}

void Supervisors::OnDrain(Stream& stream, const v1::DrainOwnGroup& wanted) {
  const std::shared_ptr<Stream> parent = stream.shared_from_this();
  const auto answer = [parent](v1::GroupDrain drain) {
    v1::SupervisorCommand command;
    *command.mutable_drain() = std::move(drain);
    parent->Send(std::move(command));
  };
  bool is_own = false;
  {
    absl::MutexLock lock(&mu_);
    const auto rank = ranks_.find({wanted.group(), 0});
    is_own = rank != ranks_.end() && rank->second.parent == parent;
  }
  if (is_own) return drain_(wanted, answer);
  v1::GroupDrain refused;
  refused.set_group(wanted.group());
  refused.set_is_draining(wanted.is_draining());
  refused.set_refusal("this supervisor does not run rank 0 of the group");
  answer(std::move(refused));
}

void Supervisors::OnClosed(Stream& stream) {
  std::shared_ptr<Stream> self = stream.shared_from_this();  // destroyed last
  absl::MutexLock lock(&mu_);
  streams_.erase(&stream);
  std::erase_if(ranks_, [&](const auto& entry) { return entry.second.parent == self; });
}

}  // namespace lathe::engine
