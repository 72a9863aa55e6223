// An executor without a device, for benchmarks of the service.
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

// Weights of a model on a null worker. Later results depend on all earlier steps, so that a lost,
// doubled or reordered step shows in them.
struct NullWeights {
  int64_t digest = 0;    // of all optimizer steps
  int64_t gradient = 0;  // sum of the tokens since the last step
};

// Answers all commands with plausible results. Like a real executor, it keeps (applied_seq, window)
// of each model, which the engine compares with its ledger. A checkpoint or snapshot is only a
// manifest with these values, the weights and the LoRA spec. Thread-safe.
class NullExecutor : public ExecutorPort {
 public:
  struct Options {
    std::string base_model;
    std::filesystem::path checkpoint_root;
    // Training speed; 0: Submit answers every command before it returns.
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
    NullWeights weights;
  };
  struct Version {
    int64_t seq_id = 0;  // of its publication
    int64_t digest = 0;
  };

  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !commands_.empty();
  }
  // Body of the thread, which exists only if tokens_per_second is not 0.
  void Run();
  // Removes the next command. Like a real executor, prefers commands other than training, but keeps
  // the order of each model.
  Command TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the requests of the next training pass. Like a real executor, packs each pass from the
  // requests that are queued at its start.
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
  // No-ops: samples finish at once, so there is nothing to cancel or stream.
  void Do(const Cancel&) {}
  void Do(const StreamSample&) {}

  // Gives `model_id` the state stored in `dir` and reports the end of `request_id`. `applied_seq`
  // < 0: the stored value.
  void Restore(const std::string& request_id, const std::string& model_id, const std::string& dir,
               int64_t applied_seq, bool with_window) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `model_id` names the model whose state accompanies the report; empty: no model.
  void Emit(Report report, const std::string& model_id = "") ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns null, and reports a failure of `request_id`, if the model does not exist.
  Model* Find(const std::string& request_id, const std::string& model_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ModelState StateOf(const std::string& model_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const ExecutorListener listener_;

  mutable absl::Mutex mu_;
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Model> models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Version> versions_ ABSL_GUARDED_BY(mu_);  // by id
  ExecutorCounters counters_ ABSL_GUARDED_BY(mu_);
  int64_t num_executed_ ABSL_GUARDED_BY(mu_) = 0;  // commands
  std::deque<Command> commands_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<NamedThread> thread_;
};

}  // namespace lathe::worker
