#include "services/engine/dispatcher/supervisors.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace lathe::engine {
namespace {

// Its streams within this process.
class SupervisorsServer : private v1::WorkerPool::CallbackService {
 public:
  explicit SupervisorsServer(std::function<void(EventBody)> post)
      : supervisors_(std::move(post), [](const v1::SupervisorHello&) { return absl::OkStatus(); }),
        server_(grpc::ServerBuilder().RegisterService(this).BuildAndStart()) {}
  ~SupervisorsServer() override {
    supervisors_.EndStreams();
    server_->Shutdown();
  }

  std::unique_ptr<v1::WorkerPool::Stub> NewStub() {
    return v1::WorkerPool::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
  }

 private:
  grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Supervise(
      grpc::CallbackServerContext*) override {
    return supervisors_.Start();
  }

  Supervisors supervisors_;
  std::unique_ptr<grpc::Server> server_;
};

// The parent of group "g".
class Parent {
 public:
  explicit Parent(SupervisorsServer& server)
      : stub_(server.NewStub()), stream_(stub_->Supervise(&context_)) {
    v1::SupervisorMessage hello;
    hello.mutable_hello();
    stream_->Write(hello);
  }
  ~Parent() {
    stream_->WritesDone();
    stream_->Finish();
  }

  void SayStarted() {
    v1::SupervisorMessage started;
    started.mutable_started()->set_group("g");
    started.mutable_started()->set_pid(17);
    stream_->Write(started);
  }

 private:
  std::unique_ptr<v1::WorkerPool::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SupervisorMessage, v1::SupervisorCommand>> stream_;
};

// What was told of the parents of groups.
class Told {
 public:
  void Add(const EventBody& event) {
    absl::MutexLock lock(&mu_);
    changes_.push_back(std::get<SupervisorChanged>(event).is_attached);
  }
  // Once there are `count`, or `patience` is over.
  std::vector<bool> Wait(size_t count, absl::Duration patience) {
    absl::MutexLock lock(&mu_);
    const auto has_enough = [&] { return changes_.size() >= count; };
    mu_.AwaitWithTimeout(absl::Condition(&has_enough), patience);
    return changes_;
  }

 private:
  absl::Mutex mu_;
  std::vector<bool> changes_;
};

TEST_CASE("Supervisors: a parent that comes while the one before leaves is told of last",
          "[dispatcher]") {
  Told told;
  absl::Notification leaves;
  SupervisorsServer server([&](const EventBody& event) {
    if (!std::get<SupervisorChanged>(event).is_attached && !leaves.HasBeenNotified()) {
      // The next one has the time to overtake this.
      leaves.Notify();
      told.Wait(2, absl::Milliseconds(300));
    }
    told.Add(event);
  });
  auto first = std::make_unique<Parent>(server);
  Parent second(server);
  first->SayStarted();
  told.Wait(1, absl::Seconds(30));
  first.reset();
  leaves.WaitForNotification();
  second.SayStarted();
  CHECK(told.Wait(3, absl::Seconds(30)) == std::vector<bool>{true, false, true});
}

v1::RankExited BySignal(int64_t signal) {
  v1::RankExited exited;
  exited.set_signal(signal);
  return exited;
}

v1::RankExited ByCode(int64_t exit_code) {
  v1::RankExited exited;
  exited.set_exit_code(exit_code);
  return exited;
}

TEST_CASE("Supervisors: a signal of its own is a crash", "[dispatcher]") {
  const int signal = GENERATE(SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL);
  CHECK(CauseOf(BySignal(signal)) == LossCause::kCrashed);
}

TEST_CASE("Supervisors: who is killed from outside has not crashed", "[dispatcher]") {
  const int signal = GENERATE(SIGKILL, SIGTERM, SIGINT);
  CHECK(CauseOf(BySignal(signal)) == LossCause::kKilled);
}

TEST_CASE("Supervisors: a kill for memory is told from others", "[dispatcher]") {
  v1::RankExited exited = BySignal(SIGKILL);
  exited.set_is_out_of_memory(true);
  CHECK(CauseOf(exited) == LossCause::kOutOfMemory);
  CHECK(DescribeEnd(exited) == "signal 9, the machine was out of memory");
}

TEST_CASE("Supervisors: what was asked for is no death, however it came", "[dispatcher]") {
  v1::RankExited exited = BySignal(SIGSEGV);
  exited.set_was_asked(true);
  CHECK(CauseOf(exited) == LossCause::kEnded);
}

TEST_CASE("Supervisors: who exits because it was told to has not crashed", "[dispatcher]") {
  const int orderly = GENERATE(0, 75);
  CHECK(CauseOf(ByCode(orderly)) == LossCause::kEnded);
  CHECK(CauseOf(ByCode(1)) == LossCause::kCrashed);
  CHECK(CauseOf(ByCode(78)) == LossCause::kCrashed);
  CHECK(DescribeEnd(ByCode(1)) == "exit code 1");
}

}  // namespace
}  // namespace lathe::engine
