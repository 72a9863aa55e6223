#include "tools/lathe/launch/supervise_client.h"

#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "libs/common/protocol.h"
#include "libs/common/version.h"
#include "tools/lathe/data_dir.h"

namespace lathe::cli {
namespace {

// Delay between two attempts. A new leader receives the ranks' exits within about this time.
constexpr absl::Duration kPause = absl::Milliseconds(200);

v1::SupervisorMessage Hello(const std::filesystem::path& secret_file) {
  v1::SupervisorMessage message;
  const auto secret = ReadTextFile(secret_file);
  if (secret.ok()) {
    message.mutable_hello()->set_secret(std::string(absl::StripAsciiWhitespace(*secret)));
  }
  message.mutable_hello()->set_lathe_version(std::string(kVersion));
  message.mutable_hello()->set_protocol(OwnProtocol().newest);
  message.mutable_hello()->set_oldest_protocol(OwnProtocol().oldest);
  return message;
}

v1::SupervisorMessage Exited(const std::string& group, int64_t rank, const ChildExit& exit) {
  v1::SupervisorMessage message;
  v1::RankExited* const exited = message.mutable_exited();
  exited->set_group(group);
  exited->set_rank(rank);
  exited->set_pid(exit.pid);
  if (WIFSIGNALED(exit.wait_status)) {
    exited->set_signal(WTERMSIG(exit.wait_status));
  } else {
    exited->set_exit_code(WEXITSTATUS(exit.wait_status));
  }
  exited->set_was_asked(exit.was_asked);
  exited->set_is_out_of_memory(exit.is_out_of_memory);
  exited->set_restart_in_ms(absl::ToInt64Milliseconds(exit.restart_in));
  return message;
}

}  // namespace

SuperviseClient::SuperviseClient(SuperviseOptions options, std::function<void()> on_kill)
    : options_(std::move(options)),
      dialer_(options_.tls.enabled() ? Dialer(options_.tls) : Dialer()),
      on_kill_(std::move(on_kill)),
      thread_("supervise", [this] { Run(); }) {}

SuperviseClient::~SuperviseClient() {
  {
    absl::MutexLock lock(&mu_);
    is_stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.Join();
}

void SuperviseClient::OnStarted(int64_t rank, pid_t pid) {
  v1::SupervisorMessage message;
  message.mutable_started()->set_group(options_.group);
  message.mutable_started()->set_rank(rank);
  message.mutable_started()->set_pid(pid);
  absl::MutexLock lock(&mu_);
  last_[rank] = message;
  to_say_.push_back(std::move(message));
}

void SuperviseClient::OnExit(int64_t rank, const ChildExit& exit) {
  v1::SupervisorMessage message = Exited(options_.group, rank, exit);
  absl::MutexLock lock(&mu_);
  last_[rank] = message;
  to_say_.push_back(std::move(message));
}

void SuperviseClient::AskDrain(bool is_draining) {
  v1::SupervisorMessage message;
  message.mutable_drain()->set_group(options_.group);
  message.mutable_drain()->set_is_draining(is_draining);
  absl::MutexLock lock(&mu_);
  to_say_.push_back(std::move(message));
}

std::optional<v1::GroupDrain> SuperviseClient::TakeDrain() {
  absl::MutexLock lock(&mu_);
  return std::exchange(drain_, std::nullopt);
}

std::vector<v1::KillRank> SuperviseClient::TakeKills() {
  absl::MutexLock lock(&mu_);
  return std::exchange(kills_, {});
}

void SuperviseClient::Run() {
  const auto is_stopping = [this] {
    mu_.AssertReaderHeld();
    return is_stopping_;
  };
  for (size_t attempt = 0;; ++attempt) {
    Serve(options_.addresses[attempt % options_.addresses.size()]);
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&is_stopping), kPause)) return;
  }
}

void SuperviseClient::Serve(const std::string& address) {
  const auto stub = v1::WorkerPool::NewStub(dialer_.Dial(address));
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mu_);
    if (is_stopping_) return;
    context_ = &context;
    is_over_ = false;
    // Unsent exits stay queued for the next leader, which may have known the process. In addition,
    // every engine receives the latest message of each rank.
    std::erase_if(to_say_, [](const v1::SupervisorMessage& said) { return !said.has_exited(); });
    for (const auto& [rank, message] : last_) {
      const bool is_in = std::any_of(to_say_.begin(), to_say_.end(), [&](const auto& said) {
        return message.has_exited() && said.exited().rank() == rank &&
               said.exited().pid() == message.exited().pid();
      });
      if (!is_in) to_say_.push_back(message);
    }
    to_say_.push_front(Hello(options_.secret_file));
  }
  const std::unique_ptr<Stream> stream = stub->Supervise(&context);
  NamedThread reader("supervise-read", [&] { Read(*stream); });
  while (Say(*stream)) continue;
  {
    absl::MutexLock lock(&mu_);
    context_ = nullptr;
  }
  context.TryCancel();
  reader.Join();
  stream->Finish();
}

void SuperviseClient::Read(Stream& stream) {
  v1::SupervisorCommand command;
  while (stream.Read(&command)) {
    if (command.has_drain()) {
      absl::MutexLock lock(&mu_);
      drain_ = std::move(*command.mutable_drain());
    }
    if (!command.has_kill()) continue;
    {
      absl::MutexLock lock(&mu_);
      kills_.push_back(command.kill());
    }
    on_kill_();
  }
  absl::MutexLock lock(&mu_);
  is_over_ = true;
}

bool SuperviseClient::HasUpdates() const { return is_stopping_ || is_over_ || !to_say_.empty(); }

bool SuperviseClient::Say(Stream& stream) {
  v1::SupervisorMessage message;
  {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &SuperviseClient::HasUpdates));
    if (is_stopping_ || is_over_) return false;
    message = std::move(to_say_.front());
    to_say_.pop_front();
  }
  if (stream.Write(message)) return true;
  absl::MutexLock lock(&mu_);
  if (message.has_exited()) to_say_.push_front(std::move(message));
  return false;
}

}  // namespace lathe::cli
