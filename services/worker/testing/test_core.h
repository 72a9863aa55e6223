// A core over a small random model, for tests.
#pragma once

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/models/decoder.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {

inline const Model& BaseModel() {
  static const Decoder* model = new Decoder(SmallModel());
  return *model;
}

inline TrainRequest Train(const std::string& model_id, int64_t seq_id, float weight = 0.5f) {
  TrainDatum datum;
  for (int i = 0; i < 6; ++i) {
    datum.tokens.push_back((3 + 7 * i) % 40);
    datum.targets.push_back((10 + 7 * i) % 40);
    datum.weights.push_back(weight);
  }
  TrainRequest request;
  request.request_id = model_id + ":" + std::to_string(seq_id);
  request.model_id = model_id;
  request.seq_id = seq_id;
  request.loss = DefaultLoss("cross_entropy");
  request.data = {datum};
  return request;
}

inline OptimStep Step(const std::string& model_id, int64_t seq_id, int64_t expected_applied_seq,
                      std::vector<int64_t> window) {
  return {.request_id = model_id + ":" + std::to_string(seq_id),
          .model_id = model_id,
          .seq_id = seq_id,
          .expected_applied_seq = expected_applied_seq,
          .window = std::move(window),
          .adam = {.learning_rate = 0.05}};
}

inline SampleRequest Sample(const std::string& request_id, const std::string& version_id) {
  SampleRequest request;
  request.request_id = request_id;
  request.version_id = version_id;
  request.prompt = {1, 2, 3};
  request.params = {.max_tokens = 4, .temperature = 0, .ignore_eos = true};
  return request;
}

// Reads versions that another core of this process serves.
class DirectReader : public VersionReader {
 public:
  absl::Status Read(const VersionAddress&, const std::string& version_id, int64_t seq_id,
                    const Begin& begin) override {
    if (from == nullptr) return absl::UnavailableError("no source serves it");
    const auto version = from->Take(version_id, seq_id);
    if (!version.ok()) return version.status();
    const auto into = begin((*version)->header);
    if (!into.ok()) return into.status();
    std::memcpy(*into, (*version)->data, (*version)->header.num_bytes);
    return absl::OkStatus();
  }

  ServedVersions* from = nullptr;
};

// Runs its jobs in order, one for each RunNext.
class FakeVersionJobs : public VersionJobs {
 public:
  explicit FakeVersionJobs(const CheckpointStore& store, VersionReader* reader = nullptr)
      : files_(store, at::kCPU, reader) {}

  absl::Status Enqueue(VersionJob job) override {
    if (waiting.size() == max_waiting) return absl::ResourceExhaustedError("full");
    waiting.push_back(std::move(job));
    return absl::OkStatus();
  }

  VersionJobDone RunNext() {
    VersionJob job = std::move(waiting.front());
    waiting.pop_front();
    return files_.Run(job);
  }

  std::deque<VersionJob> waiting;
  size_t max_waiting = 1000;

 private:
  VersionFiles files_;
};

// Runs its jobs in order, one for each RunNext.
class FakeRecoveryJobs : public RecoveryJobs {
 public:
  explicit FakeRecoveryJobs(const CheckpointStore& store) : files_(store) {}

  absl::Status Enqueue(RecoveryJob job) override {
    if (waiting.size() == max_waiting) return absl::ResourceExhaustedError("full");
    waiting.push_back(std::move(job));
    return absl::OkStatus();
  }

  RecoveryJobDone RunNext() {
    RecoveryJob job = std::move(waiting.front());
    waiting.pop_front();
    return files_.Run(std::move(job));
  }

  std::deque<RecoveryJob> waiting;
  size_t max_waiting = 1000;

 private:
  RecoveryFiles files_;
};

// A core with model "m" of rank 4, and all parts it needs.
struct Worker {
  explicit Worker(const CoreOptions& options = {}, const Model& model = BaseModel(),
                  DeviceClock* device_clock = nullptr)
      : store(dir.path(), model.part(), "base", "hash"),
        parts{model,
              nullptr,
              store,
              writer,
              version_jobs,
              recovery_jobs,
              device_clock != nullptr ? *device_clock : host_clock,
              &served_versions},
        core(parts, options, /*generation=*/3) {
    core.Apply(CreateAdapter{"create", "m", {.rank = 4, .seed = 1}});
    Drain();
  }

  // Runs until no work is left, versions are read and snapshots are written.
  std::vector<ReportEvent> Drain() {
    while (core.RunUnit() || RunVersionJob() || RunRecoveryJob()) {
    }
    return core.TakeReports();
  }

  bool RunVersionJob() {
    if (version_jobs.waiting.empty()) return false;
    core.Apply(version_jobs.RunNext());
    return true;
  }

  bool RunRecoveryJob() {
    if (recovery_jobs.waiting.empty()) return false;
    core.Apply(recovery_jobs.RunNext());
    return true;
  }

  void Apply(std::vector<TrainRequest> requests) { core.Apply(TrainBatch{std::move(requests)}); }

  ModelState State() { return *StateOf(core, "m"); }
  static std::optional<ModelState> StateOf(const ExecutorCore& core, const std::string& model_id) {
    for (const ModelState& state : core.ModelStates()) {
      if (state.model_id == model_id) return state;
    }
    return std::nullopt;
  }

  // Waits for the next save, and lets the core know that its memory is free.
  ReportEvent NextSave() {
    ReportEvent event = *saves.Pop();
    core.Apply(*written.Pop());
    return event;
  }

  TempDir dir;
  BoundedQueue<ReportEvent> saves{16};
  CheckpointStore store;
  BoundedQueue<SaveWritten> written{1024};
  CheckpointWriter writer{store, [this](ReportEvent event) { saves.Push(std::move(event)); },
                          [this](SaveWritten one) { written.Push(one); }};
  ServedVersions served_versions;
  DirectReader reader;
  FakeVersionJobs version_jobs{store, &reader};
  FakeRecoveryJobs recovery_jobs{store};
  FakeClock clock;
  HostDeviceClock host_clock{[this] { return clock.Now(); }};
  ExecutorParts parts;
  ExecutorCore core;
};

// Keeps two training requests and two samples at a worker.
struct SteadyLoad {
  explicit SteadyLoad(Worker& target) : worker(target) {}

  // Counts what was done, and sends as much again.
  void Renew() {
    for (const ReportEvent& event : worker.core.TakeReports()) {
      num_trained += std::holds_alternative<TrainDone>(event.report) ? 1 : 0;
      num_sampled += std::holds_alternative<SampleDone>(event.report) ? 1 : 0;
    }
    while (seq_id < num_trained + 2) worker.Apply({Train("m", ++seq_id)});
    while (num_samples < num_sampled + 2) {
      SampleRequest request = Sample("s" + std::to_string(++num_samples), "");
      request.params.max_tokens = 50;
      worker.core.Apply(request);
    }
  }

  Worker& worker;
  int64_t num_trained = 0;
  int64_t num_sampled = 0;
  int64_t seq_id = 0;
  int64_t num_samples = 0;
};

inline std::vector<std::string> VersionIds(const ExecutorCore& core) {
  std::vector<std::string> ids;
  for (const HeldVersion& held : core.Versions()) ids.push_back(held.version_id);
  return ids;
}

// Returns the report that answers `request_id`. Fails the test unless there is exactly one.
template <typename T>
T Answer(const std::vector<ReportEvent>& reports, const std::string& request_id) {
  std::vector<T> answers;
  for (const ReportEvent& event : reports) {
    const auto* answer = std::get_if<T>(&event.report);
    if (answer != nullptr && answer->request_id == request_id) answers.push_back(*answer);
  }
  REQUIRE(answers.size() == 1);
  return answers[0];
}

inline double Loss(const TrainOutput& output) {
  REQUIRE(output.metrics.at(0).name == "loss:sum");
  return output.metrics[0].value;
}

// Tolerance for equal work in different passes: other rows change the order of fp32 sums.
inline constexpr double kRounding = 1e-5;

// Difference of the logprobs of the first tokens, which have the same context.
inline double Difference(const SampleOutput& a, const SampleOutput& b) {
  return std::abs(a.sequences.at(0).logprobs.at(0) - b.sequences.at(0).logprobs.at(0));
}

// Memory of one version of rank 4.
inline int64_t VersionBytes() {
  return 4 * Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
}

inline SampleOutput SampleFrom(Worker& worker, const std::string& version_id) {
  worker.core.Apply(Sample("from " + version_id, version_id));
  return Answer<SampleDone>(worker.Drain(), "from " + version_id).output;
}

inline void CheckEqual(const SampleOutput& a, const SampleOutput& b) {
  REQUIRE(a.sequences.size() == b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    CHECK(a.sequences[i].tokens == b.sequences[i].tokens);
    CHECK(a.sequences[i].logprobs == b.sequences[i].logprobs);
  }
}

}  // namespace lathe::worker
