// Tests the promise of snapshots. A model restored from any snapshot, with the later commands run
// again, equals the undisturbed model bit for bit.
#include <catch2/catch.hpp>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/worker/testing/snapshot_test_tools.h"
#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {
namespace {

const std::vector<std::string> kModels = {"a", "b", "c"};

class ReplayRandom {
 public:
  explicit ReplayRandom(uint32_t seed) : engine_(seed) {}
  // 0 … limit - 1
  size_t Below(size_t limit) { return engine_() % limit; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <typename Values>
  const auto& Of(const Values& values) {
    return values[Below(values.size())];
  }

 private:
  std::mt19937 engine_;
};

// A client's request in the form in which an engine sends it.
struct Op {
  std::string model_id;
  Command command;
};

// A random program over a few models.
class ReplayProgram {
 public:
  explicit ReplayProgram(ReplayRandom& random) : random_(random) {
    for (const std::string& model_id : kModels) {
      const size_t rank = 1 + random.Below(6);
      const LoraSpec lora{.rank = static_cast<int64_t>(rank), .seed = rank};
      Add(model_id, CreateAdapter{model_id + ":create", model_id, lora});
    }
    for (int i = 0; i < 40; ++i) AddOp(random.Of(kModels));
  }

  const std::vector<Op>& ops() const { return ops_; }

 private:
  struct Ledger {
    int64_t last_seq = 0;
    int64_t applied_seq = 0;
    std::vector<int64_t> window;
  };

  void Add(const std::string& model_id, Command command) {
    ops_.push_back({model_id, std::move(command)});
  }

  void AddOp(const std::string& model_id) {
    Ledger& model = ledgers_[model_id];
    const int64_t seq_id = ++model.last_seq;
    const std::string id = model_id + ":" + std::to_string(seq_id);
    const size_t dice = random_.Below(20);
    if (dice < 9) {
      AddTrain(id, model_id, seq_id);
    } else if (dice < 13) {
      AddStep(id, model_id, seq_id);
    } else if (dice == 13) {
      Add(model_id, ClearGradient{model_id});
      model.window.clear();
    } else if (dice == 14) {
      Add(model_id, SaveCheckpoint{.request_id = id,
                                   .model_id = model_id,
                                   .seq_id = seq_id,
                                   .dir = "saved" + id,
                                   .manifest_json = "{}"});
      saved_.push_back("saved" + id);
    } else if (dice == 15 && !saved_.empty()) {
      Add(model_id, LoadAdapter{id, model_id, seq_id, random_.Of(saved_), random_.OneIn(2)});
      model.applied_seq = seq_id;
      model.window.clear();
    } else if (dice < 18) {
      Add(model_id, PublishVersion{id, model_id, seq_id, "version" + id});
    } else {
      Add(model_id, PublishVersion{id, model_id, seq_id, "live" + model_id, true});
    }
  }

  void AddTrain(const std::string& id, const std::string& model_id, int64_t seq_id) {
    TrainRequest request;
    if (random_.OneIn(8)) {
      // Two of these in a window give a gradient that is not finite.
      request = Train(model_id, seq_id, 2e37f);
    } else {
      std::vector<TrainDatum> data;
      for (size_t n = 1 + random_.Below(3); n > 0; --n) {
        const float advantage = random_.OneIn(2) ? 1.0f : -0.5f;
        data.push_back(TestDatum(1 + random_.Below(random_.OneIn(4) ? 60 : 12),
                                 static_cast<int32_t>(random_.Below(96)), advantage));
      }
      request = TestRequest(id, model_id, seq_id, std::move(data), random_.Of(AllLosses())->name);
      request.loss.clip_low = 0.8;
      request.loss.clip_high = 1.2;
    }
    request.forward_only = random_.OneIn(5);
    if (!request.forward_only) ledgers_[model_id].window.push_back(seq_id);
    Add(model_id, TrainBatch{{std::move(request)}});
  }

  void AddStep(const std::string& id, const std::string& model_id, int64_t seq_id) {
    Ledger& model = ledgers_[model_id];
    Add(model_id, OptimStep{.request_id = id,
                            .model_id = model_id,
                            .seq_id = seq_id,
                            .expected_applied_seq = model.applied_seq,
                            .window = std::exchange(model.window, {}),
                            .adam = {.learning_rate = random_.OneIn(2) ? 0.01 : 0.05,
                                     .weight_decay = random_.OneIn(2) ? 0.0 : 0.1,
                                     .grad_clip_norm = random_.OneIn(2) ? 0.0 : 0.5}});
    model.applied_seq = seq_id;
  }

  ReplayRandom& random_;
  std::vector<Op> ops_;
  std::map<std::string, Ledger> ledgers_;
  std::vector<std::string> saved_;
};

// Runs ops and records the results. With exact numerics, requests share passes. With fast numerics
// each runs alone, because other rows change the order of sums.
class Run {
 public:
  Run(Numerics numerics, ReplayRandom& random)
      : worker({.trainer = {.token_budget = 30, .numerics = numerics}}),
        is_exact_(numerics == Numerics::kExact),
        random_(random) {
    worker.core.Apply(DropAdapter{"", "m"});
    Settle();
  }

  void Do(const Op& op) {
    worker.core.Apply(op.command);
    if (std::holds_alternative<SaveCheckpoint>(op.command)) {
      Settle();
      REQUIRE(std::holds_alternative<SaveDone>(worker.NextSave().report));
    } else if (!is_exact_ || random_.OneIn(4)) {
      Settle();
    } else {
      for (size_t units = random_.Below(12); units > 0; --units) worker.core.RunUnit();
    }
    Collect();
  }

  // Runs all work but the writing of snapshots and versions.
  void Settle() {
    while (worker.core.RunUnit() || worker.RunVersionJob()) {
    }
    Collect();
  }

  void Finish() {
    Settle();
    for (const ReportEvent& event : worker.Drain()) Record(event);
  }

  Worker worker;
  std::map<std::string, TrainOutput> trained;               // by request id
  std::map<std::string, std::vector<NamedMetric>> stepped;  // by request id
  std::map<std::string, ModelState> snapshots;              // by snapshot id
  std::set<std::string> saved_versions;                     // directories

 private:
  void Collect() {
    for (const ReportEvent& event : worker.core.TakeReports()) Record(event);
  }

  void Record(const ReportEvent& event) {
    if (const auto* done = std::get_if<TrainDone>(&event.report)) {
      trained[done->request_id] = done->output;
    } else if (const auto* step = std::get_if<StepDone>(&event.report)) {
      stepped[step->request_id] = step->metrics;
    } else if (const auto* snapshot = std::get_if<SnapshotDone>(&event.report)) {
      REQUIRE(snapshot->status.ok());
      snapshots[snapshot->snapshot_id] = snapshot->state;
    } else if (const auto* saved = std::get_if<VersionSaved>(&event.report)) {
      REQUIRE(saved->status.ok());
      saved_versions.insert(saved->dir);
    } else if (const auto* failed = std::get_if<OpFailed>(&event.report)) {
      FAIL(failed->request_id << ": " << failed->status);
    }
  }

  const bool is_exact_;
  ReplayRandom& random_;
};

// The start of a model's replay.
struct Point {
  std::string snapshot_id;  // empty: from the beginning
  size_t next_op = 0;       // index in the program
};
using Points = std::map<std::string, std::vector<Point>>;  // by model

// Runs the program, takes snapshots in between, which are written some time later, and saves every
// version.
Points RunWithSnapshots(const ReplayProgram& program, ReplayRandom& random, Run& run) {
  Points points;
  for (const std::string& model_id : kModels) points[model_id].push_back({});
  size_t num_taken = 0;
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    run.Do(op);
    if (const auto* publish = std::get_if<PublishVersion>(&op.command)) {
      run.Settle();  // otherwise an inflight version's earlier weights would be saved
      run.worker.core.Apply(SaveVersion{publish->version_id, "of" + publish->request_id, "{}"});
    }
    if (i >= kModels.size() && random.OneIn(3)) {
      const std::string& model_id = random.Of(kModels);
      const std::string snapshot_id = "snapshot" + std::to_string(i);
      // A third snapshot would wait for a buffer and be taken later than here.
      while (num_taken - run.snapshots.size() >= 2) {
        run.worker.RunRecoveryJob();
        run.Settle();
      }
      ++num_taken;
      run.worker.core.Apply(SnapshotOf(model_id, snapshot_id));
      points[model_id].push_back({snapshot_id, i + 1});
    }
    while (random.OneIn(2) && run.worker.RunRecoveryJob()) {
    }
  }
  run.Finish();
  return points;
}

// Recreates the program's models and versions in a worker that has only the files of `before`.
void Recover(const ReplayProgram& program, const Points& points, Run& before, ReplayRandom& random,
             Run& run) {
  std::filesystem::remove_all(run.worker.dir.path());
  std::filesystem::copy(before.worker.dir.path(), run.worker.dir.path(),
                        std::filesystem::copy_options::recursive);
  std::map<std::string, size_t> begins;
  for (const std::string& model_id : kModels) {
    const Point point = random.Of(points.at(model_id));
    begins[model_id] = point.next_op;
    if (point.snapshot_id.empty()) continue;
    const ModelState state = Restore(run.worker, model_id, point.snapshot_id);
    const ModelState& taken = before.snapshots.at(point.snapshot_id);
    CHECK(state.applied_seq == taken.applied_seq);
    CHECK(state.window == taken.window);
  }
  std::map<std::string, LoadVersion> loads;  // by version; the last one before the snapshot
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    if (i >= begins[op.model_id]) continue;
    const auto* publish = std::get_if<PublishVersion>(&op.command);
    if (publish == nullptr) continue;
    const std::string dir = "of" + publish->request_id;
    REQUIRE(before.saved_versions.contains(dir));
    loads[publish->version_id] = {publish->version_id, dir,
                                  publish->is_inflight ? publish->seq_id : 0};
  }
  for (const auto& [version_id, load] : loads) run.worker.core.Apply(load);
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    if (i < begins[op.model_id] || std::holds_alternative<SaveCheckpoint>(op.command)) continue;
    run.Do(op);
  }
  run.Finish();
}

void CheckSameOutput(const TrainOutput& actual, const TrainOutput& expected) {
  CHECK(actual.logprobs == expected.logprobs);
  for (size_t i = 0; i < expected.metrics.size(); ++i) {
    INFO(expected.metrics[i].name);
    CHECK(actual.metrics.at(i).value == expected.metrics[i].value);
  }
}

// Checks that all results of `actual` equal those in `expected`.
void CheckOutcomes(const Run& actual, const Run& expected) {
  for (const auto& [request_id, output] : actual.trained) {
    INFO(request_id);
    CheckSameOutput(output, expected.trained.at(request_id));
  }
  for (const auto& [request_id, metrics] : actual.stepped) {
    INFO(request_id);
    const std::vector<NamedMetric>& others = expected.stepped.at(request_id);
    REQUIRE(metrics.size() == others.size());
    for (size_t i = 0; i < metrics.size(); ++i) CHECK(metrics[i].value == others[i].value);
  }
}

void CheckModels(Run& actual, Run& expected) {
  for (const std::string& model_id : kModels) {
    INFO("model " << model_id);
    CheckSame(StateOf(actual.worker, model_id), StateOf(expected.worker, model_id));
  }
}

void CheckVersions(Run& actual, Run& expected) {
  REQUIRE(VersionIds(actual.worker.core) == VersionIds(expected.worker.core));
  for (const std::string& version_id : VersionIds(expected.worker.core)) {
    INFO(version_id);
    SampleRequest request = Sample("sample", version_id);
    request.params.temperature = 1;
    request.params.seed = 5;
    std::vector<SampledSequence> sequences;
    for (Run* run : {&actual, &expected}) {
      run->worker.core.Apply(request);
      sequences.push_back(Answer<SampleDone>(run->worker.Drain(), "sample").output.sequences.at(0));
    }
    CHECK(sequences[0].tokens == sequences[1].tokens);
    CHECK(sequences[0].logprobs == sequences[1].logprobs);
    REQUIRE(sequences[0].weights_runs.size() == sequences[1].weights_runs.size());
    for (size_t i = 0; i < sequences[0].weights_runs.size(); ++i) {
      CHECK(sequences[0].weights_runs[i].seq_id == sequences[1].weights_runs[i].seq_id);
    }
  }
}

bool HasSkippedStep(const Run& run) {
  for (const auto& [request_id, metrics] : run.stepped) {
    for (const NamedMetric& metric : metrics) {
      if (metric.name == "nonfinite_gradients" && metric.value == 1) return true;
    }
  }
  return false;
}

// Returns the number of snapshots, and the number of programs with a skipped step.
std::pair<int, int> CrashPrograms(Numerics numerics, uint32_t num_programs) {
  int num_snapshots = 0;
  int num_skipped = 0;
  for (uint32_t i = 0; i < num_programs; ++i) {
    const uint32_t seed = Catch::rngSeed() + i;
    INFO("seed " << seed);
    ReplayRandom random(seed);
    const ReplayProgram program(random);
    Run undisturbed(numerics, random);
    for (const Op& op : program.ops()) undisturbed.Do(op);
    undisturbed.Finish();
    Run before(numerics, random);
    const Points points = RunWithSnapshots(program, random, before);
    CheckOutcomes(before, undisturbed);
    for (int crash = 0; crash < 3; ++crash) {
      Run after(numerics, random);
      Recover(program, points, before, random, after);
      CheckOutcomes(after, undisturbed);
      CheckModels(after, undisturbed);
      CheckVersions(after, undisturbed);
    }
    num_snapshots += static_cast<int>(before.snapshots.size());
    num_skipped += HasSkippedStep(undisturbed) ? 1 : 0;
  }
  return {num_snapshots, num_skipped};
}

TEST_CASE("a crash anywhere: snapshots and replay give what was there, bit for bit",
          "[snapshots]") {
  const Numerics numerics = GENERATE(Numerics::kExact, Numerics::kFast);
  const auto [num_snapshots, num_skipped] = CrashPrograms(numerics, 4);
  CHECK(num_snapshots > 20);
  CHECK(num_skipped > 0);
}

// Takes minutes. Use --rng-seed for another seed.
TEST_CASE("a crash anywhere, in many programs", "[.slow]") {
  CrashPrograms(GENERATE(Numerics::kExact, Numerics::kFast), 100);
}

}  // namespace
}  // namespace lathe::worker
