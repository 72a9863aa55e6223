// An executor without a device, for measuring the service around it.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Keeps what the ledger compares, (applied_seq, window) of each model, as a real executor does, and
// answers everything with plausible results. Checkpoints and snapshots are a manifest that says
// (applied_seq, window). Thread-safe.
class NullExecutor : public ExecutorPort {
 public:
  struct Options {
    std::string base_model;
    std::filesystem::path checkpoint_root;
    // Speed of training; 0: every command is answered before Submit returns.
    int64_t tokens_per_second = 0;
  };

  NullExecutor(Options options, ExecutorListener listener);
  ~NullExecutor() override;

  absl::Status Submit(Command command, std::string encoded) override;
  void Reset(int64_t generation) override;
  ExecutorState State() const override;

 private:
  struct Model {
    int64_t applied_seq = 0;
    std::set<int64_t> window;
    LoraSpec lora;
  };

  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !commands_.empty();
  }
  // The thread of an executor with a speed.
  void Run();
  // As a real executor: what takes no time comes before training, in the order of each model.
  Command TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As a real executor: what fits in a pass is packed anew between two of them.
  TrainBatch TakePass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wait(const Command& command) const;

  void Do(const TrainBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const TrainRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const CreateAdapter& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const LoadAdapter& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const DropAdapter& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const OptimStep& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const ClearGradient& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const SaveCheckpoint& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const PublishVersion& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const LoadVersion& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const ServeVersion& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const SaveVersion& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const DropVersion& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const SampleRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const Snapshot& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(const RestoreAdapter& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing runs long enough to be cancelled or streamed.
  void Do(const Cancel&) {}
  void Do(const StreamSample&) {}

  // Gives `model_id` the state in `dir`; reports a creation.
  void Restore(const std::string& request_id, const std::string& model_id, const std::string& dir,
               int64_t applied_seq, bool with_window) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `model_id`: whose state goes with the report; empty: none.
  void Emit(Report report, const std::string& model_id = "") ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: reported as a failure of `request_id`.
  Model* Find(const std::string& request_id, const std::string& model_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ModelState StateOf(const std::string& model_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const ExecutorListener listener_;

  mutable absl::Mutex mu_;
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Model> models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t> versions_ ABSL_GUARDED_BY(mu_);  // seq of the publication
  ExecutorCounters counters_ ABSL_GUARDED_BY(mu_);
  std::deque<Command> commands_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<NamedThread> thread_;
};

}  // namespace lathe::worker
