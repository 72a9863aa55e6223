// The executor's work, one call at a time, without its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/executor/device_clock.h"
#include "services/worker/executor/device_meter.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/executor/model_ops.h"
#include "services/worker/executor/planning/model_lanes.h"
#include "services/worker/executor/planning/time_share.h"
#include "services/worker/executor/saves/checkpoint_writer.h"
#include "services/worker/executor/startup/memory_use.h"
#include "services/worker/executor/versions/recovery_files.h"
#include "services/worker/executor/versions/served_versions.h"
#include "services/worker/executor/versions/version_table.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/data_parallel_sampling.h"
#include "services/worker/tokenizer/tokenizer.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {

// Parts that outlive a Reset.
struct ExecutorParts {
  const Model& model;
  const Tokenizer* tokenizer;  // nullptr: stop strings cannot be matched
  CheckpointStore& store;
  CheckpointWriter& writer;
  VersionJobs& version_jobs;    // pass their results to Apply
  RecoveryJobs& recovery_jobs;  // pass their results to Apply
  DeviceClock& device_clock;
  ServedVersions* served_versions = nullptr;  // null: no other process reads versions
};

struct CoreOptions {
  TrainerOptions trainer;
  SamplingOptions sampling;
  ReplicaPlace replica;
  // Share of device time that sampling gets while there is training too.
  double sampling_share = 0.5;
  ModelOpsOptions model_ops;
};

// State of one generation: models, versions, work in progress. Use it from one thread. `parts` must
// outlive it.
class ExecutorCore {
 public:
  ExecutorCore(const ExecutorParts& parts, const CoreOptions& options, int64_t generation);

  // Takes a command. Commands that need no unit are done at once.
  void Apply(Command command);
  void Apply(VersionJobDone done);
  void Apply(RecoveryJobDone done);
  void Apply(const SaveWritten& written) { parts_.writer.Remove(written); }

  // Runs the barriers that are ready, up to one that reads a checkpoint, then one unit: a training
  // step or a sampling pass. Returns false if there is nothing to do until the next command or
  // SaveWritten. A training step or the staging of a snapshot or save has yield points. At each
  // one, `on_yield` is called, which may call Apply and TakeReports, and sampling passes run if it
  // is their turn.
  bool RunUnit(const std::function<void()>& on_yield = {});

  // RunUnit for one of several ranks, all of which run the same units. If there is both training
  // and sampling, the unit is `preferred`, and no clock decides. `on_yield` may only take reports.
  // No sampling passes run at yield points.
  bool RunUnit(DeviceUse preferred, const std::function<void()>& on_yield);
  // The use that this rank's clock prefers for the next unit if there is work for both.
  DeviceUse preferred_use();

  // Returns the reports since the last call, in order.
  std::vector<ReportEvent> TakeReports() { return std::exchange(reports_, {}); }

  std::vector<ModelState> ModelStates() const;
  std::vector<HeldVersion> Versions() const { return versions_.Held(); }
  VersionUsage version_usage() const {
    return {.num_in_memory = versions_.NumInMemory(), .bytes_in_memory = versions_.NumBytes()};
  }
  ExecutorCounters counters() const {
    return {trainer_.counters(), sampling_.counters(), versions_.counters(), counters_};
  }
  KvUsage kv_usage() const { return sampling_.kv_usage(); }
  MemoryInUse memory_in_use() const;

 private:
  struct RunningTrain {
    std::string model_id;
    int64_t seq_id = 0;
    bool forward_only = false;
  };

  void Do(TrainBatch batch);
  void Do(const LoadVersion& command);
  void Do(const SaveVersion& command);
  void Do(const ServeVersion& command);
  absl::StatusOr<VersionServed> Serve(const ServeVersion& command);
  void Do(DropVersion command);
  void Do(SampleRequest request);
  void Do(const Cancel& command);
  void Do(const StreamSample& command);
  template <typename Barrier>
  void Do(Barrier barrier);

  // Waits for the device if the choice of the next use depends on it: when training would get
  // another unit before samples. Samples never have to wait, because their passes are over when
  // they return.
  void LearnWhatTrainingTook();
  // Runs `work`, a unit of training, with yield points.
  void RunWithYieldPoints(const std::function<void()>& on_yield, const std::function<void()>& work);
  bool RunBarriers(const std::function<void()>& on_yield);
  void RunBarrier(const ModelLanes::Barrier& barrier);
  void AfterBarrier(const ModelLanes::Barrier& barrier, bool ok);
  bool BeginTrains(const std::function<void()>& on_yield);
  bool AnswerAtOnce(const TrainRequest& request);
  bool IsInWindow(const TrainRequest& request) const;
  void CollectTrains();
  void Defer(SampleRequest request);
  void AddSample(SampleRequest request);
  void ReleaseDeferredSamples(const std::string& version_id);
  void MoveSamples(const std::string& version_id);
  void ResumeDeferredCopies();
  void RunSamplingPass();
  void CollectSamples();
  void EndSample(const std::string& request_id);
  void Count(const SnapshotDone& done);
  void Emit(Report report, const std::string& model_id = "");

  const ExecutorParts parts_;
  const int64_t generation_;
  AdapterPool adapters_;
  VersionTable versions_;
  ModelOps model_ops_;
  ModelLanes lanes_;
  Trainer trainer_;
  DataParallelSampling sampling_;
  TimeShare time_share_;
  std::optional<DeviceUse> preferred_;                  // set during a unit of several ranks
  std::map<std::string, RunningTrain> running_trains_;  // by request id
  // Request ids of the running forward_backwards, by model and seq_id.
  std::map<std::pair<std::string, int64_t>, std::string> running_seqs_;
  std::map<std::string, std::string> running_samples_;  // version id by request id
  // Outputs of the forward_backwards in each model's window, to answer duplicates with.
  std::map<std::string, std::map<int64_t, TrainOutput>> window_outputs_;
  // Samples that wait until their version is published or read, by version id.
  std::map<std::string, std::vector<SampleRequest>> deferred_samples_;
  std::set<std::string> pending_versions_;  // a lane has their PublishVersion
  // Commands that wait for a pending version, or for one that is being read.
  std::vector<std::variant<SaveVersion, ServeVersion>> deferred_copies_;
  CoreCounters counters_;
  DeviceMeter meter_;
  std::vector<ReportEvent> reports_;
};

}  // namespace lathe::worker
