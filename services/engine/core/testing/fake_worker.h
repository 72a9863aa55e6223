// A counting worker for tests of the core. It runs commands in order, one when a test says so.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/events.h"
#include "services/engine/testing/counting_worker.h"

namespace lathe::engine {

// State outside of the processes of workers.
struct FakeDisk : WorkerDisk {
  SharedBodies bodies;
  // Versions that workers serve from memory: publication seq and weights, by version.
  std::map<std::string, std::pair<int64_t, Weights>> served;
  std::map<std::string, LoraConfig> loras;  // of checkpoints, by directory
};

class FakeWorker {
 public:
  // `disk` must outlive this.
  FakeWorker(std::string process_id, FakeDisk& disk, std::string base_model = "base",
             std::string group = "g")
      : disk_(disk),
        worker_(std::move(group), std::move(process_id), std::move(base_model), disk) {}

  // Executes or queues a command. Commands of another epoch are dropped.
  void Receive(const SendToWorker& message);
  bool HasWork() const { return !queue_.empty(); }
  // Runs the oldest command. Its reports go to TakeReports.
  void RunOne();
  // Reports since the last call, including those repeated after Adopt.
  std::vector<EventBody> TakeReports() { return std::exchange(reports_, {}); }

  WorkerAttached Hello(bool ready = true) const;
  int64_t kv_cache_tokens = 1000;
  int64_t max_running_samples = 0;  // 0: it does not report it
  std::vector<LoraModule> lora_modules = DenseLoraModules();
  int64_t pid = 17;
  bool is_supervised = false;
  MeshShape mesh;
  GroupRole role = GroupRole::kBoth;
  bool serves_versions = false;
  std::string session;  // rendezvous session from its last Form

  // The next run of this request fails with that error.
  void FailOnce(const std::string& model_id, int64_t seq_id, ErrorInfo error) {
    failures_[{model_id, seq_id}] = std::move(error);
  }

  // One line per effect on a model: "fb 3", "step 4 [1,2,3]", "clear".
  const std::vector<std::string>& History(const std::string& model_id) {
    return history_[model_id];
  }
  const std::vector<WorkerCommand>& received() const { return received_; }
  template <typename Command>
  std::vector<Command> Received() const {
    std::vector<Command> found;
    for (const WorkerCommand& command : received_) {
      if (const auto* one = std::get_if<Command>(&command)) found.push_back(*one);
    }
    return found;
  }
  void ForgetReceived() { received_.clear(); }
  // Drops the commands that have not run, as if they had not arrived.
  void ForgetQueue() {
    for (const Work& work : std::exchange(queue_, {})) worker_.Forget(work.request_id);
  }
  // Loses the accumulated gradient of a model.
  void LoseGradient(const std::string& model_id) { worker_.Find(model_id)->window.clear(); }
  // Loses a version, as if it could not be read any more, and returns its report of that.
  EventBody LoseVersion(const std::string& version_id);
  // Number of OptimSteps refused for their window. A correct core never causes one.
  int64_t num_refused_steps() const { return num_refused_steps_; }
  const std::set<std::string>& acked() const { return acked_; }
  int64_t epoch() const { return worker_.epoch(); }
  const std::string& process_id() const { return worker_.process_id(); }
  bool Holds(const std::string& model_id) const { return worker_.Find(model_id) != nullptr; }
  // Steps that made the weights of a model: "step 3 [1,2]".
  std::vector<std::string> Weights(const std::string& model_id) const {
    return StepsOf(worker_.Find(model_id)->weights);
  }
  // Current weights of a version, as samples see them.
  std::vector<std::string> VersionWeights(const std::string& version_id) const {
    return StepsOf(worker_.versions().at(version_id).weights);
  }
  // False: snapshots and version saves get no answer.
  bool writes_to_disk = true;
  // False: loads of versions get no answer.
  bool loads_versions = true;
  // True: versions that other workers serve cannot be read.
  bool is_cut_off = false;

 private:
  static std::vector<std::string> StepsOf(const engine::Weights& weights);
  bool Answers(const WorkerCommand& command) const;
  void Load(const SendLoadVersion& load);
  // Takes the reports of the worker and writes what it wants to be written.
  void Collect();
  void AddToHistory(const Work& work);

  FakeDisk& disk_;
  CountingWorker worker_;
  std::deque<Work> queue_;
  std::set<std::string> acked_;
  std::map<std::pair<std::string, int64_t>, ErrorInfo> failures_;
  std::vector<EventBody> reports_;
  std::map<std::string, std::vector<std::string>> history_;
  std::vector<WorkerCommand> received_;
  int64_t num_refused_steps_ = 0;
};

}  // namespace lathe::engine
