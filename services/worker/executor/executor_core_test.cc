#include "services/worker/executor/executor_core.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <variant>
#include <vector>

#include "services/worker/testing/test_core.h"

namespace lathe::worker {
namespace {

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

TEST_CASE("a unit reads one checkpoint at most, so that other work comes in between",
          "[executor]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  for (const char* id : {"a", "b"}) worker.core.Apply(LoadAdapter{id, id, 1, "missing", false});
  CHECK(worker.core.RunUnit());
  const std::vector<ReportEvent> first = worker.core.TakeReports();
  const auto count = [&first](auto is_one) {
    return std::count_if(first.begin(), first.end(),
                         [&](const ReportEvent& event) { return is_one(event.report); });
  };
  CHECK(count([](const Report& report) { return std::holds_alternative<OpFailed>(report); }) == 1);
  CHECK(count([](const Report& report) { return std::holds_alternative<Started>(report); }) == 1);
  Answer<OpFailed>(worker.Drain(), "b");
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
  // Each loss is finite, but the sum of their gradients overflows.
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
      Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
  Worker worker({.model_ops = {.adapter_bytes = 48 * num_parameters}});
  worker.core.Apply(CreateAdapter{"second", "n", {.rank = 4, .seed = 2}});
  const absl::Status refused = Answer<OpFailed>(worker.Drain(), "second").status;
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("an adapter of " + std::to_string(num_parameters) + " parameters") &&
                 Catch::Contains("GiB for adapters are free"));
  // A model always fits in place of itself. A smaller one fits beside it.
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

}  // namespace
}  // namespace lathe::worker
