// A worker without tensors: the meaning of each command. It has no clock, thread or connection. Its
// owner decides when work runs, when writes end, and what arrives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/events.h"
#include "services/engine/testing/counting_adapter.h"
#include "services/engine/testing/worker_disk.h"

namespace lathe::engine {

// Meaning of a request's body. The sender of the request chooses the fields.
struct RequestBody {
  std::string model_id;  // for a training request
  int64_t seq_id = 0;
  bool forward_only = false;
  uint64_t content = 0;
  bool fails = false;       // the worker fails it
  int64_t num_samples = 1;  // of a sample
  int64_t kills = 0;        // chance that its start kills a worker of the simulation, per mille
};

using SharedBody = std::shared_ptr<const RequestBody>;
using SharedBodies = std::map<std::string, SharedBody>;  // by body id

// Work that a command asks for.
struct Work {
  std::string request_id;  // empty: no request waits
  std::string model_id;    // empty: a sample or a load of a version
  WorkerCommand command;   // a SendTrainBatch has one item
  SharedBody body;         // null: the command has none
  // Weights of a sample that has started: a later publication of its version does not change them.
  // Null: the base model, or the version is not here.
  Weights weights = nullptr;

  template <typename Command>
  const Command* As() const {
    return std::get_if<Command>(&command);
  }
};

// Keeps the results of requests until they are acknowledged.
class CountingWorker {
 public:
  struct Write {
    std::string dir;
    CheckpointFiles files;
  };
  struct Report {
    EventBody event;
    uint64_t weights = 0;        // hash of the weights that a request used, or that a step made
    std::optional<Write> write;  // the report goes out when this is done
  };
  struct Version {
    Weights weights;
    bool is_loaded = true;
    int64_t seq_id = 0;  // publication seq; 0: read from a checkpoint
  };

  // `disk` must outlive this.
  CountingWorker(std::string group, std::string process_id, std::string base_model,
                 const WorkerDisk& disk);

  // ---- commands

  // Returns true if the command comes from a leader that another one has replaced.
  bool IsOutdated(const WorkerCommand& command) const;
  // Returns false for a command of another epoch.
  bool IsOfEpoch(const SendToWorker& message) const;
  // Obeys a command and returns the work that it asks for. FormGroup drops all state, AdoptGroup
  // repeats the results. The caller has checked term and epoch.
  std::vector<Work> Receive(const SendToWorker& message, const SharedBodies& bodies);
  // Returns false if the request is done, cancelled or unknown.
  bool IsRunning(const std::string& request_id) const { return running_.count(request_id) > 0; }
  // Returns how many of a running sample's sequences have ended.
  int64_t NumEnded(const std::string& request_id) const { return running_.at(request_id); }
  // Forgets a request, as if it had not arrived.
  void Forget(const std::string& request_id) { running_.erase(request_id); }
  // Notes the weights with which a sample starts. Does nothing for other work, and for a version
  // that is not here.
  void Start(Work& work) const;
  // Ends a sequence of a running sample, but not its last one, and reports that.
  void EndSequence(const std::string& request_id);
  // Runs work of the current formation, but not a load of a version.
  void Run(const Work& work);
  // Ends work with an error instead.
  void Fail(const Work& work, ErrorInfo error);
  // Returns true if the version of this load is still wanted and not there.
  bool AwaitsLoad(const SendLoadVersion& load) const;
  // Ends a load. `weights`: what it has read; nullopt: nothing, for the reason `error`.
  void EndLoad(const SendLoadVersion& load, std::optional<Weights> weights, ErrorInfo error = {});
  // Reports since the last call, in their order.
  std::vector<Report> TakeReports();

  // ---- state

  int64_t epoch() const { return epoch_; }
  int64_t generation() const { return generation_; }  // changes with each FormGroup
  const std::string& group() const { return group_; }
  const std::string& process_id() const { return process_id_; }
  const std::map<std::string, Version>& versions() const { return versions_; }
  // Returns nullptr if the worker does not hold the model.
  CountingAdapter* Find(const std::string& model_id);
  const CountingAdapter* Find(const std::string& model_id) const;
  // Returns nullptr if the version is absent or being loaded.
  const Version* FindLoaded(const std::string& version_id) const;
  // Loses a version, as if it could not be read any more.
  void LoseVersion(const std::string& version_id);
  // Its state as a Hello reports it; the owner adds what it knows about the process.
  WorkerAttached Hello() const;
  ReadyModel Ready(int64_t kv_cache_tokens = 1000, int64_t max_running_samples = 0) const;
  // Returns the first kind of object that the worker still holds, with its number, such as
  // "2 models". Empty: it holds nothing.
  std::string DescribeHeld() const;

 private:
  using Works = std::vector<Work>;

  // Returns false if the request is known. If it is done, its report is sent again. If sequences of
  // it have ended, their number is.
  bool Begin(const std::string& request_id);
  void Take(const FormGroup& command, const SharedBodies&, Works&);
  void Take(const AdoptGroup& command, const SharedBodies&, Works&);
  void Take(const SendTrainBatch& command, const SharedBodies& bodies, Works& works);
  void Take(const SendSample& command, const SharedBodies& bodies, Works& works);
  void Take(const SendLoadVersion& command, const SharedBodies&, Works& works);
  void Take(const SendDropVersion& command, const SharedBodies&, Works&);
  void Take(const SendServeVersion& command, const SharedBodies&, Works&);
  void Take(const SendSaveVersion& command, const SharedBodies&, Works&);
  void Take(const SendCancel& command, const SharedBodies&, Works&);
  void Take(const SendAck& command, const SharedBodies&, Works&);
  void Take(const SendDie&, const SharedBodies&, Works&) {}
  // Takes any other command: work on a model.
  template <typename Command>
  void Take(const Command& command, const SharedBodies&, Works& works);

  void Do(const SendTrainBatch& command, const Work& work, Report& report);
  void Do(const SendOptimStep& command, const Work& work, Report& report);
  void Do(const SendCreateAdapter& command, const Work& work, Report& report);
  void Do(const SendLoadAdapter& command, const Work& work, Report& report);
  void Do(const SendRestoreAdapter& command, const Work& work, Report& report);
  void Do(const SendDropAdapter& command, const Work& work, Report& report);
  void Do(const SendClearGradient& command, const Work& work, Report& report);
  void Do(const SendSaveCheckpoint& command, const Work& work, Report& report);
  void Do(const SendPublishVersion& command, const Work& work, Report& report);
  void Do(const SendSample& command, const Work& work, Report& report);
  void Do(const SendSnapshot& command, const Work& work, Report& report);
  template <typename Command>
  void Do(const Command&, const Work&, Report&) {}

  // Returns the model of some work, or fails it and returns nullptr.
  CountingAdapter* Need(const Work& work, Report& report);
  // Returns files on the disk, or fails the report and returns nullptr.
  const CheckpointFiles* Read(const std::string& dir, Report& report) const;
  void Finish(const Work& work, Report report);
  void Repeat(const Report& done);
  void Say(EventBody event, std::optional<Write> write = std::nullopt);
  void ReportLoaded(const SendLoadVersion& command);
  void ReportEnded(const std::string& request_id, int64_t num_ended);

  const std::string group_;
  const std::string process_id_;
  const std::string base_model_;
  const WorkerDisk& disk_;
  int64_t epoch_ = 0;
  int64_t term_ = 0;
  int64_t generation_ = 0;
  std::map<std::string, CountingAdapter> models_;
  std::map<std::string, Version> versions_;
  // Requests that were received and are not finished, with the number of sequences that have ended.
  std::map<std::string, int64_t> running_;
  std::map<std::string, Report> done_;  // not acknowledged yet
  std::vector<Report> reports_;
};

}  // namespace lathe::engine
