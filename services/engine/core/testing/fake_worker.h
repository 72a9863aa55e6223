// A worker process without tensors. It keeps (applied_seq, window) per model and runs commands in
// order. It keeps results until they are acknowledged and refuses what a real worker refuses.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// State that survives a worker's process.
struct FakeDisk {
  // State of a model. Its weights are the steps and loads that made them: "step 3 [1,2]", "load
  // c1".
  struct State {
    int64_t applied_seq = 0;
    std::set<int64_t> window;
    std::vector<std::string> weights;
  };
  std::map<std::string, State> states;                       // snapshots and checkpoints
  std::map<std::string, std::vector<std::string>> versions;  // weights, by directory
  std::set<std::string> unreadable;                          // directories
  // Versions that workers serve from memory: publication seq and weights, by version.
  std::map<std::string, std::pair<int64_t, std::vector<std::string>>> served;
};

class FakeWorker {
 public:
  // `disk` must outlive this.
  FakeWorker(std::string process_id, FakeDisk& disk, std::string base_model = "base")
      : disk_(disk), process_id_(std::move(process_id)), base_model_(std::move(base_model)) {}

  // Executes or queues a command. Commands of another epoch are dropped.
  void Receive(const SendToWorker& message);
  bool HasWork() const { return !queue_.empty(); }
  // Runs the oldest command. Its reports go to TakeReports.
  void RunOne();
  // Reports since the last call, including those repeated after Adopt.
  std::vector<EventBody> TakeReports();

  WorkerAttached Hello(bool ready = true) const;
  int64_t kv_cache_tokens = 1000;
  int64_t pid = 17;
  bool is_supervised = false;
  MeshShape mesh;
  std::string group = "g";
  GroupRole role = GroupRole::kBoth;
  bool serves_versions = false;
  std::string session;  // rendezvous session from its last Form

  // The next run of this request fails with that error.
  void FailOnce(const std::string& model_id, int64_t seq_id, ErrorInfo error);

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
    queue_.clear();
    running_.clear();
  }
  // Loses the accumulated gradient of a model.
  void LoseGradient(const std::string& model_id) { models_.at(model_id).window.clear(); }
  // Number of OptimSteps refused for their window. A correct core never causes one.
  int64_t num_refused_steps() const { return num_refused_steps_; }
  const std::set<std::string>& acked() const { return acked_; }
  int64_t epoch() const { return epoch_; }
  const std::string& process_id() const { return process_id_; }
  bool Holds(const std::string& model_id) const { return models_.count(model_id) > 0; }
  const std::vector<std::string>& Weights(const std::string& model_id) const {
    return models_.at(model_id).weights;
  }
  // Current weights of a version, as samples see them.
  const std::vector<std::string>& VersionWeights(const std::string& version_id) const {
    return versions_.at(version_id);
  }
  // False: snapshots and version saves get no answer.
  bool writes_to_disk = true;
  // False: loads of versions get no answer.
  bool loads_versions = true;
  // True: versions that other workers serve cannot be read.
  bool is_cut_off = false;

 private:
  using Held = FakeDisk::State;
  struct Work {
    std::string request_id;
    std::string model_id;
    int64_t seq_id = 0;
    WorkerCommand command;
  };

  void Handle(const FormGroup& command);
  void Handle(const AdoptGroup& command);
  void Handle(const SendTrainBatch& command);
  void Handle(const SendClearGradient& command);
  void Handle(const SendDropVersion& command) { versions_.erase(command.version_id); }
  void Handle(const SendAck& command);
  void Handle(const SendDropAdapter& command);
  void Handle(const SendLoadVersion& command);
  void Handle(const SendCancel&) {}
  void Handle(const SendDie&) {}
  void Handle(const SendSaveVersion& command);
  void Handle(const SendServeVersion& command);
  void LoadServed(const SendLoadVersion& command);
  void Handle(const SendSnapshot& command);
  template <typename Command>
  void Handle(const Command& command) {
    Queue(command.request_id, command);
  }
  void Queue(const std::string& request_id, WorkerCommand command);
  WorkerDone Run(const Work& work);
  void RunOn(Held& model, const SendOptimStep& step, WorkerDone& done);
  void Restore(const std::string& dir, const std::string& model_id, WorkerDone& done);
  // If the model is missing, sets the error in `done` and returns true.
  bool IsMissing(const std::string& model_id, WorkerDone& done) const;
  void Write(const SendSnapshot& command);

  FakeDisk& disk_;
  std::string process_id_;
  const std::string base_model_;
  int64_t epoch_ = 0;
  int64_t term_ = 0;
  std::map<std::string, Held> models_;
  std::map<std::string, std::vector<std::string>> versions_;
  std::map<std::string, int64_t> published_at_;
  std::deque<Work> queue_;
  std::set<std::string> running_;
  std::map<std::string, WorkerDone> done_;
  std::set<std::string> acked_;
  std::map<std::pair<std::string, int64_t>, ErrorInfo> failures_;
  std::vector<EventBody> reports_;
  std::map<std::string, LoraConfig> saved_;  // by directory
  std::map<std::string, std::vector<std::string>> history_;
  std::vector<WorkerCommand> received_;
  int64_t num_refused_steps_ = 0;

 public:
  // Model and kind of a TrainBatch item, which are in the body that the fake does not see.
  std::map<std::string, std::pair<std::string, bool>> body_info;  // body_id -> model, forward only
};

}  // namespace lathe::engine
