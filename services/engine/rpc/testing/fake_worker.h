// A worker without a model: a real client of WorkerPool.Attach that responds at once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/lora/lora_modules.h"
#include "libs/common/protocol.h"
#include "libs/common/version.h"
#include "protos/lathe/v1/worker.grpc.pb.h"

namespace lathe::engine {

// A fake worker. Logprobs are -1 for every target, samples are the token 7, "loss:sum" is the
// number of datums. State and unacknowledged results survive streams, as in a real worker. One
// thread reads.
class FakeWorker {
 public:
  struct Options {
    std::string address;  // of WorkerPool
    std::string secret;
    std::string group = "g0";
    std::string base_model = "tiny";
    std::string process_id = "process-1";
    std::string version = std::string(kVersion);
    ProtocolRange protocol = OwnProtocol();
    int64_t rank = 0;
    int64_t tp = 1;
    std::vector<LoraModule> lora_modules = DenseLoraModules();
    int64_t max_running_samples = 0;  // 0: it does not report it
    bool answers = true;              // false: receives and does not respond
    std::string checkpoints;          // where saves write the files of an archive; empty: nowhere
  };

  explicit FakeWorker(Options options);
  ~FakeWorker();

  // Connects, sends Hello and works until Detach or the engine's end.
  void Attach(const std::string& address);
  // Sends another Hello on the same stream.
  void RepeatHello();
  // Cuts the stream; the worker keeps its state.
  void Detach();
  // Waits for the end of the last stream and returns its status.
  grpc::Status WaitForEnd();
  // Responds to everything received so far, and to everything from now on.
  void StartAnswering();

  // Sends the progress of running samples, as a decode pass would.
  void Report(const lathe::v1::SampleProgress& progress);

  // Sends a heartbeat.
  void Beat(const lathe::v1::WorkerHeartbeat& heartbeat);

  // Returns copies of the received messages.
  std::vector<lathe::v1::EngineMessage> received();

 private:
  using Stream = grpc::ClientReaderWriter<lathe::v1::WorkerMessage, lathe::v1::EngineMessage>;

  lathe::v1::WorkerMessage MakeHello() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Read(Stream* stream);
  void Handle(const lathe::v1::EngineMessage& message);
  void Answer(const lathe::v1::EngineMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(const lathe::v1::TrainItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(const lathe::v1::OptimStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(const lathe::v1::Sample& sample) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(lathe::v1::OperationDone done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const lathe::v1::WorkerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Options options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<lathe::v1::WorkerPool::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;  // replaced only while no thread reads
  std::string pieces_;              // reading thread only

  absl::Mutex mu_;  // also serialises writes
  bool answers_ ABSL_GUARDED_BY(mu_);
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, lathe::v1::ModelState> models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, lathe::v1::OperationDone> unacknowledged_ ABSL_GUARDED_BY(mu_);
  std::vector<lathe::v1::EngineMessage> unanswered_ ABSL_GUARDED_BY(mu_);
  std::vector<lathe::v1::EngineMessage> received_ ABSL_GUARDED_BY(mu_);
  std::thread reader_;
};

}  // namespace lathe::engine
