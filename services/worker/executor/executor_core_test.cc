#include "services/worker/executor/executor_core.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "services/worker/models/qwen3/model.h"
#include "services/worker/sampling/test_model.h"

namespace lathe::worker {
namespace {

const Model& BaseModel() {
  static const Qwen3Model* model = new Qwen3Model(SmallModel());
  return *model;
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "core-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TrainRequest Train(const std::string& model_id, int64_t seq_id, float weight = 0.5f) {
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
  request.data = {datum};
  return request;
}

OptimStep Step(const std::string& model_id, int64_t seq_id, int64_t expected_applied_seq,
               std::vector<int64_t> window) {
  return {.request_id = model_id + ":" + std::to_string(seq_id),
          .model_id = model_id,
          .seq_id = seq_id,
          .expected_applied_seq = expected_applied_seq,
          .window = std::move(window),
          .adam = {.learning_rate = 0.05}};
}

SampleRequest Sample(const std::string& request_id, const std::string& version_id) {
  SampleRequest request;
  request.request_id = request_id;
  request.version_id = version_id;
  request.prompt = {1, 2, 3};
  request.params = {.max_tokens = 4, .temperature = 0, .ignore_eos = true};
  return request;
}

// A core with model "m" of rank 4, and everything around it.
struct Worker {
  explicit Worker(const CoreOptions& options = {}) : core(parts, options, /*generation=*/3) {
    core.Apply(CreateAdapter{"create", "m", {.rank = 4, .seed = 1}});
    Drain();
  }

  // Runs until nothing is left to do; saves are finished too.
  std::vector<ReportEvent> Drain() {
    while (core.RunUnit()) {
    }
    return core.TakeReports();
  }

  void Apply(std::vector<TrainRequest> requests) { core.Apply(TrainBatch{std::move(requests)}); }

  ModelState State() { return *StateOf(core, "m"); }
  static std::optional<ModelState> StateOf(const ExecutorCore& core, const std::string& model_id) {
    for (const ModelState& state : core.ModelStates()) {
      if (state.model_id == model_id) return state;
    }
    return std::nullopt;
  }

  ReportEvent NextSave() { return *saves.Pop(); }

  TempDir dir;
  BoundedQueue<ReportEvent> saves{16};
  CheckpointStore store{dir.path(), SmallSpec(), "base", "hash"};
  CheckpointWriter writer{store, [this](ReportEvent event) { saves.Push(std::move(event)); }};
  ExecutorParts parts{BaseModel(), nullptr, store, writer};
  ExecutorCore core;
};

// The report that answers `request_id`; fails the test when there is not exactly one.
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

double Loss(const TrainOutput& output) {
  REQUIRE(output.metrics.at(0).name == "loss:sum");
  return output.metrics[0].value;
}

// Neighbours in a pass change the order of fp32 sums.
constexpr double kRounding = 1e-5;

// Of the logprobs of the first tokens, which have the same context.
double Difference(const SampleOutput& a, const SampleOutput& b) {
  return std::abs(a.sequences.at(0).logprobs.at(0) - b.sequences.at(0).logprobs.at(0));
}

TEST_CASE("a step waits for the requests before it and later ones see its weights", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1), Train("m", 2)});
  worker.core.Apply(Step("m", 3, 0, {1, 2}));
  worker.Apply({Train("m", 4)});
  const auto reports = worker.Drain();
  const double before = Loss(Answer<TrainDone>(reports, "m:1").output);
  CHECK(Loss(Answer<TrainDone>(reports, "m:2").output) == Approx(before));
  Answer<StepDone>(reports, "m:3");
  CHECK(Loss(Answer<TrainDone>(reports, "m:4").output) < before);
  CHECK(worker.State().applied_seq == 3);
  CHECK(worker.State().window == std::vector<int64_t>{4});
  CHECK(reports.back().generation == 3);
  REQUIRE(reports.back().model.has_value());
  CHECK(reports.back().model->window == std::vector<int64_t>{4});
}

TEST_CASE("a step on another window or applied_seq is refused and changes nothing", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Step("m", 2, 0, {}));
  const auto other_window = Answer<OpFailed>(worker.Drain(), "m:2");
  CHECK(other_window.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(other_window.status.message() ==
        "optim_step 2 expects applied_seq 0 and window [], worker holds 0 and [1]");
  worker.core.Apply(Step("m", 3, 1, {1}));
  Answer<OpFailed>(worker.Drain(), "m:3");
  CHECK(worker.State().applied_seq == 0);
  CHECK(worker.State().window == std::vector<int64_t>{1});
  worker.core.Apply(Step("m", 4, 0, {1}));
  Answer<StepDone>(worker.Drain(), "m:4");
}

double GradNorm(const StepDone& step) {
  REQUIRE(step.metrics.at(0).name == "grad_norm");
  return step.metrics[0].value;
}

TEST_CASE("a request already in the window is answered again and not added again", "[executor]") {
  Worker once;
  once.Apply({Train("m", 1)});
  once.core.Apply(Step("m", 2, 0, {1}));
  const double expected = GradNorm(Answer<StepDone>(once.Drain(), "m:2"));

  Worker twice;
  twice.Apply({Train("m", 1)});
  const auto first = Answer<TrainDone>(twice.Drain(), "m:1");
  twice.Apply({Train("m", 1)});
  const auto second = Answer<TrainDone>(twice.Drain(), "m:1");
  CHECK(second.output.logprobs == first.output.logprobs);
  twice.core.Apply(Step("m", 2, 0, {1}));
  CHECK(GradNorm(Answer<StepDone>(twice.Drain(), "m:2")) == Approx(expected).epsilon(1e-6));
}

TEST_CASE("a barrier behind a request that is answered at once runs", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.Drain();
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Step("m", 2, 0, {1}));
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:1");
  Answer<StepDone>(reports, "m:2");
}

TEST_CASE("the same seq twice in one batch is added once", "[executor]") {
  Worker worker;
  TrainRequest copy = Train("m", 1);
  copy.request_id = "other";
  worker.Apply({Train("m", 1), copy});
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:1");
  CHECK(Answer<OpFailed>(reports, "other").status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(worker.State().window == std::vector<int64_t>{1});
}

TEST_CASE("a failed forward_backward adds nothing", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1, std::numeric_limits<float>::infinity()), Train("m", 2)});
  const auto reports = worker.Drain();
  Answer<OpFailed>(reports, "m:1");
  Answer<TrainDone>(reports, "m:2");
  CHECK(worker.State().window == std::vector<int64_t>{2});
}

TEST_CASE("forward adds nothing to the window", "[executor]") {
  Worker worker;
  TrainRequest forward = Train("m", 1);
  forward.forward_only = true;
  worker.Apply({forward});
  Answer<TrainDone>(worker.Drain(), "m:1");
  CHECK(worker.State().window.empty());
}

TEST_CASE("a step without gradient is a step with zero gradient and says so", "[executor]") {
  Worker worker;
  worker.core.Apply(Step("m", 1, 0, {}));
  const auto done = Answer<StepDone>(worker.Drain(), "m:1");
  CHECK(done.metrics.back().name == "no_gradient");
  CHECK(worker.State().applied_seq == 1);
}

TEST_CASE("a gradient that is not finite is skipped or fails the step, and the next one counts",
          "[executor]") {
  CoreOptions options;
  options.model_ops.nonfinite_gradients =
      GENERATE(NonFiniteGradients::kSkip, NonFiniteGradients::kFail);
  Worker worker(options);
  // Each loss is finite, their gradients overflow.
  worker.Apply({Train("m", 1, 2e37f), Train("m", 2, 2e37f)});
  worker.core.Apply(Step("m", 3, 0, {1, 2}));
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:2");
  int64_t applied_seq = 0;
  if (options.model_ops.nonfinite_gradients == NonFiniteGradients::kFail) {
    CHECK(Answer<OpFailed>(reports, "m:3").status.code() == absl::StatusCode::kFailedPrecondition);
  } else {
    CHECK(Answer<StepDone>(reports, "m:3").metrics.back().name == "nonfinite_gradients");
    CHECK(Answer<StepDone>(reports, "m:3").metrics.back().value == 1);
    applied_seq = 3;
  }
  CHECK(worker.State().window.empty());
  worker.Apply({Train("m", 4)});
  worker.core.Apply(Step("m", 5, applied_seq, {4}));
  CHECK(Answer<StepDone>(worker.Drain(), "m:5").metrics.back().value == 0);
}

TEST_CASE("a cleared gradient lets the next step start from an empty window", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(ClearGradient{"m"});
  worker.core.Apply(Step("m", 2, 0, {}));
  Answer<StepDone>(worker.Drain(), "m:2");
}

TEST_CASE("requests of several models share a pass", "[executor]") {
  Worker worker;
  worker.core.Apply(CreateAdapter{"create2", "n", {.rank = 2, .seed = 2}});
  worker.Drain();
  const int64_t passes = worker.core.counters().train_passes;
  worker.Apply({Train("m", 1)});
  worker.Apply({Train("n", 1)});
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:1");
  Answer<TrainDone>(reports, "n:1");
  CHECK(worker.core.counters().train_passes == passes + 1);
  CHECK(std::get<Started>(reports.at(0).report).request_ids.size() == 2);
}

TEST_CASE("a model that the memory for adapters cannot hold is refused with the numbers",
          "[executor]") {
  const int64_t num_parameters =
      Adapter(SmallSpec(), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
  Worker worker({.model_ops = {.adapter_bytes = 36 * num_parameters}});
  worker.core.Apply(CreateAdapter{"second", "n", {.rank = 4, .seed = 2}});
  const absl::Status refused = Answer<OpFailed>(worker.Drain(), "second").status;
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("an adapter of " + std::to_string(num_parameters) + " parameters") &&
                 Catch::Contains("GiB for adapters are free"));
  // In place of what it has, a model always fits; a smaller one beside it too.
  worker.core.Apply(CreateAdapter{"again", "m", {.rank = 4, .seed = 3}});
  worker.core.Apply(CreateAdapter{"small", "n", {.rank = 2, .seed = 2}});
  const auto reports = worker.Drain();
  Answer<OpDone>(reports, "again");
  Answer<OpDone>(reports, "small");
}

TEST_CASE("work for a model that is not here fails and leaves the others", "[executor]") {
  Worker worker;
  worker.Apply({Train("gone", 1), Train("m", 1)});
  worker.core.Apply(Step("gone", 2, 0, {1}));
  const auto reports = worker.Drain();
  CHECK(Answer<OpFailed>(reports, "gone:1").status.code() == absl::StatusCode::kNotFound);
  CHECK(Answer<OpFailed>(reports, "gone:2").status.code() == absl::StatusCode::kNotFound);
  Answer<TrainDone>(reports, "m:1");
}

TEST_CASE("a saved model loads with its optimizer and continues as if never saved", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Step("m", 2, 0, {1}));
  worker.core.Apply(SaveCheckpoint{.request_id = "save",
                                   .model_id = "m",
                                   .seq_id = 3,
                                   .kind = CheckpointKind::kTraining,
                                   .dir = "ckpt",
                                   .manifest_json = "{}"});
  // The step right behind the save must not leak into it.
  worker.Apply({Train("m", 4)});
  worker.core.Apply(Step("m", 5, 2, {4}));
  worker.Apply({Train("m", 6)});
  const double expected = Loss(Answer<TrainDone>(worker.Drain(), "m:6").output);
  const ReportEvent save = worker.NextSave();
  const auto& saved = std::get<SaveDone>(save.report);
  CHECK(saved.size_bytes > 0);
  CHECK(saved.manifest_sha256.size() == 64);
  CHECK(save.model->applied_seq == 2);

  worker.core.Apply(LoadAdapter{"load", "copy", 9, "ckpt", /*with_optimizer=*/true});
  CHECK(Answer<OpDone>(worker.Drain(), "load").lora.rank == 4);
  worker.Apply({Train("copy", 10)});
  worker.core.Apply(Step("copy", 11, 9, {10}));
  worker.Apply({Train("copy", 12)});
  CHECK(Loss(Answer<TrainDone>(worker.Drain(), "copy:12").output) ==
        Approx(expected).epsilon(1e-6));
}

TEST_CASE("a load that fails leaves the model as it was", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(LoadAdapter{"load", "m", 2, "missing", false});
  Answer<OpFailed>(worker.Drain(), "load");
  CHECK(worker.State().window == std::vector<int64_t>{1});
  CHECK(worker.State().applied_seq == 0);
}

TEST_CASE("a published version samples with the weights of its moment", "[executor]") {
  Worker worker;
  worker.core.Apply(PublishVersion{"publish", "m", 1, "v1"});
  worker.core.Apply(Sample("s1", "v1"));
  auto reports = worker.Drain();
  CHECK(Answer<OpDone>(reports, "publish").version_bytes > 0);
  const auto before = Answer<SampleDone>(reports, "s1").output;
  worker.Apply({Train("m", 2)});
  worker.core.Apply(Step("m", 3, 0, {2}));
  worker.core.Apply(PublishVersion{"publish2", "m", 4, "v2"});
  worker.core.Apply(Sample("s2", "v1"));
  worker.core.Apply(Sample("s3", "v2"));
  reports = worker.Drain();
  CHECK(Difference(Answer<SampleDone>(reports, "s2").output, before) < kRounding);
  CHECK(Difference(Answer<SampleDone>(reports, "s3").output, before) > 100 * kRounding);
  CHECK(worker.core.VersionIds() == std::vector<std::string>{"v1", "v2"});
  CHECK(before.sequences[0].tokens.size() == 4);
}

TEST_CASE("an inflight version is replaced by each publication and says which it was",
          "[executor]") {
  Worker worker;
  const auto publish = [&](int64_t seq_id) {
    worker.core.Apply(PublishVersion{.request_id = "p" + std::to_string(seq_id),
                                     .model_id = "m",
                                     .seq_id = seq_id,
                                     .version_id = "m@inflight",
                                     .is_inflight = true});
  };
  publish(1);
  worker.core.Apply(Sample("before", "m@inflight"));
  const auto before = Answer<SampleDone>(worker.Drain(), "before").output;
  worker.Apply({Train("m", 2)});
  worker.core.Apply(Step("m", 3, 0, {2}));
  worker.core.Apply(Sample("between", "m@inflight"));
  const auto between = Answer<SampleDone>(worker.Drain(), "between").output;
  publish(4);
  worker.Drain();
  worker.core.Apply(Sample("after", "m@inflight"));
  const auto after = Answer<SampleDone>(worker.Drain(), "after").output;

  CHECK(Difference(before, between) < kRounding);
  CHECK(Difference(before, after) > kRounding);
  CHECK(between.sequences[0].weights_runs.at(0).seq_id == 1);
  CHECK(after.sequences[0].weights_runs.at(0).seq_id == 4);
  CHECK(after.sequences[0].weights_runs.at(0).num_tokens == 4);
}

TEST_CASE("a sampler checkpoint loads as a version, a missing one fails its samples",
          "[executor]") {
  Worker worker;
  worker.core.Apply(SaveCheckpoint{.request_id = "save",
                                   .model_id = "m",
                                   .seq_id = 1,
                                   .kind = CheckpointKind::kSampler,
                                   .dir = "sampler",
                                   .manifest_json = "{}"});
  worker.core.Apply(PublishVersion{"publish", "m", 2, "v"});
  worker.core.Apply(Sample("direct", "v"));
  const auto direct = Answer<SampleDone>(worker.Drain(), "direct").output;
  worker.NextSave();
  worker.core.Apply(LoadVersion{"loaded", "sampler"});
  worker.core.Apply(LoadVersion{"broken", "missing"});
  worker.core.Apply(Sample("s1", "loaded"));
  worker.core.Apply(Sample("s2", "broken"));
  worker.core.Apply(Sample("s3", "unheard"));
  const auto reports = worker.Drain();
  CHECK(Answer<SampleDone>(reports, "s1").output.sequences[0].tokens == direct.sequences[0].tokens);
  CHECK(std::get<VersionFailed>(reports.at(0).report).version_id == "broken");
  CHECK_FALSE(Answer<OpFailed>(reports, "s2").status.ok());
  CHECK(Answer<OpFailed>(reports, "s3").status.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a dropped version still serves the samples that run", "[executor]") {
  Worker worker;
  worker.core.Apply(PublishVersion{"publish", "m", 1, "v"});
  worker.Drain();
  worker.core.Apply(Sample("running", "v"));
  worker.core.Apply(DropVersion{"v"});
  worker.core.Apply(Sample("late", "v"));
  const auto reports = worker.Drain();
  Answer<SampleDone>(reports, "running");
  Answer<OpFailed>(reports, "late");
}

TEST_CASE("a cancelled sample is answered once", "[executor]") {
  Worker worker;
  worker.core.Apply(Sample("s", ""));
  worker.core.Apply(Cancel{"s"});
  worker.core.Apply(Cancel{"s"});
  CHECK(Answer<OpFailed>(worker.Drain(), "s").status.code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a dropped model is gone and its name can be used again", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(DropAdapter{"drop", "m"});
  Answer<OpDone>(worker.Drain(), "drop");
  CHECK(worker.core.ModelStates().empty());
  worker.core.Apply(CreateAdapter{"again", "m", {.rank = 4, .seed = 1}});
  worker.Apply({Train("m", 1)});
  Answer<TrainDone>(worker.Drain(), "m:1");
}

TEST_CASE("training and sampling that come together both finish", "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Sample("s", ""));
  const auto reports = worker.Drain();
  Answer<TrainDone>(reports, "m:1");
  Answer<SampleDone>(reports, "s");
  CHECK(worker.core.counters().decode_passes == 3);
  CHECK(worker.core.counters().generated_tokens == 4);
}

}  // namespace
}  // namespace lathe::worker
