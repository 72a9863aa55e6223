// The engine's end of Attach on a unix socket in a temporary directory, for tests.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/rpc/server.h"
#include "protos/lathe/v1/worker.grpc.pb.h"

namespace lathe::worker {

// A temporary directory, removed with its content.
class FakeDataDir {
 public:
  FakeDataDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "attach-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    std::ofstream(secret_path()) << "hunter2\n";
  }
  ~FakeDataDir() { std::filesystem::remove_all(path_); }

  std::string secret_path() const { return path_ + "/secret"; }
  std::string address() const { return "unix:" + path_ + "/worker.sock"; }

 private:
  std::string path_;
};

// Serves one stream at a time. The destructor ends it as if the engine were killed.
class FakeEngine : private lathe::v1::WorkerPool::Service {
 public:
  explicit FakeEngine(const std::string& address) : received_(1000) {
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder);
    AddListener(builder, address);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeEngine() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  // Returns the next message other than a heartbeat; an empty one after `patience`.
  lathe::v1::WorkerMessage Next(absl::Duration patience = absl::Seconds(30)) {
    while (std::optional<lathe::v1::WorkerMessage> message = received_.PopFor(patience)) {
      if (!message->has_heartbeat()) return *std::move(message);
    }
    return {};
  }

  // Returns the next heartbeat; an empty message after 30 s.
  lathe::v1::WorkerMessage NextHeartbeat() {
    while (std::optional<lathe::v1::WorkerMessage> message = received_.PopFor(absl::Seconds(30))) {
      if (message->has_heartbeat()) return *std::move(message);
    }
    return {};
  }

  // Waits for a stream if there is none.
  void Send(const lathe::v1::EngineMessage& message) {
    absl::MutexLock lock(&mu_);
    const auto open = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stream_ != nullptr; };
    mu_.Await(absl::Condition(&open));
    stream_->Write(message);
  }

 private:
  using Stream = grpc::ServerReaderWriter<lathe::v1::EngineMessage, lathe::v1::WorkerMessage>;

  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    SetStream(stream);
    lathe::v1::WorkerMessage message;
    while (stream->Read(&message)) received_.Push(std::move(message));
    SetStream(nullptr);
    return grpc::Status::OK;
  }

  void SetStream(Stream* stream) {
    absl::MutexLock lock(&mu_);
    stream_ = stream;
  }

  BoundedQueue<lathe::v1::WorkerMessage> received_;
  absl::Mutex mu_;
  Stream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lathe::worker
