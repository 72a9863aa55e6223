#include "services/engine/runtime/result_points.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "protos/lathe/v1/types.pb.h"
#include "services/engine/core/state/plan.h"

namespace lathe::engine {
namespace {

FinishedRequest Request(OperationKind kind) {
  return {.run_id = "s:train:0",
          .tenant_id = "t1",
          .kind = kind,
          .tokens = 12,
          .done_at = 7'000'000'000,
          .accepted_at = 1'000'000'000,
          .dispatched_at = 3'000'000'000,
          .executed_at = 6'000'000'000};
}

std::map<std::string, double> ValuesOf(const PointEntryPtr& entry) {
  REQUIRE(entry != nullptr);
  std::map<std::string, double> values;
  for (const NamedPoint& point : entry->points) values[point.name] = point.value;
  CHECK(values.size() == entry->points.size());
  return values;
}

void AddMetric(v1::ForwardBackwardResult& result, const std::string& name, double value) {
  v1::NamedNumber& metric = *result.add_metrics();
  metric.set_name(name);
  metric.set_value(value);
}

TEST_CASE("Points of a forward_backward: its metrics, datums, tokens and times", "[series]") {
  v1::OperationResult result;
  result.set_kind(v1::OPERATION_KIND_FORWARD_BACKWARD);
  v1::ForwardBackwardResult& body = *result.mutable_forward_backward();
  body.add_outputs()->set_logprobs(std::string(1 << 20, 'x'));
  body.add_outputs()->set_logprobs("yyyy");
  AddMetric(body, "loss:sum", 2.5);
  AddMetric(body, "clip:mean", std::numeric_limits<double>::infinity());
  const PointEntryPtr entry =
      PointsOfResult(Request(OperationKind::kForwardBackward), result.SerializeAsString());
  CHECK(entry->kind == EntryKind::kResult);
  CHECK(entry->run_id == "s:train:0");
  CHECK(entry->tenant_id == "t1");
  CHECK(entry->unix_ms == 7000);
  CHECK(ValuesOf(entry) == std::map<std::string, double>{{"loss:sum", 2.5},
                                                         {"forward_backward/tokens", 12},
                                                         {"forward_backward/datums", 2},
                                                         {"forward_backward/queue_seconds", 2},
                                                         {"forward_backward/execute_seconds", 3}});
}

TEST_CASE("Points of a forward are not those of the training loss", "[series]") {
  v1::OperationResult result;
  AddMetric(*result.mutable_forward_backward(), "loss:sum", 1);
  FinishedRequest request = Request(OperationKind::kForward);
  request.accepted_at = 0;
  CHECK(ValuesOf(PointsOfResult(request, result.SerializeAsString())) ==
        std::map<std::string, double>{
            {"forward/loss:sum", 1}, {"forward/tokens", 12}, {"forward/datums", 0}});
}

TEST_CASE("Points of an optim_step end its step", "[series]") {
  v1::OperationResult result;
  v1::NamedNumber& metric = *result.mutable_optim_step()->add_metrics();
  metric.set_name("grad_norm");
  metric.set_value(0.5);
  FinishedRequest request = Request(OperationKind::kOptimStep);
  const PointEntryPtr unknown = PointsOfResult(request, result.SerializeAsString());
  CHECK(ValuesOf(unknown).size() == 3);
  request.learning_rate = 3e-4;
  const PointEntryPtr entry = PointsOfResult(request, result.SerializeAsString());
  CHECK(entry->kind == EntryKind::kOptimStep);
  CHECK(ValuesOf(entry)["grad_norm"] == 0.5);
  CHECK(ValuesOf(entry)["optim_step/learning_rate"] == 3e-4);
  CHECK(ValuesOf(entry).size() == 4);
}

TEST_CASE("The learning rate of a step is in its row", "[series]") {
  v1::AdamParams adam;
  adam.set_learning_rate(3e-4);
  const Plan plan = {.args = OptimStepArgs{.adam_params = adam.SerializeAsString()}};
  RequestRow row;
  row.kind = OperationKind::kOptimStep;
  row.plan = EncodePlan(plan);
  CHECK(LearningRateOf(row) == 3e-4);
  row.kind = OperationKind::kForwardBackward;
  CHECK(LearningRateOf(row) == std::nullopt);
  row.kind = OperationKind::kOptimStep;
  Plan refused = plan;
  refused.refused = true;
  for (const std::string& bytes : {EncodePlan(refused), std::string("damaged"), std::string()}) {
    row.plan = bytes;
    CHECK(LearningRateOf(row) == std::nullopt);
  }
}

TEST_CASE("Points of a sample count its sequences and tokens", "[series]") {
  v1::OperationResult result;
  result.mutable_sample()->add_sequences()->set_tokens(std::string(12, '\1'));
  result.mutable_sample()->add_sequences()->set_tokens(std::string(4, '\1'));
  result.mutable_sample()->mutable_sequences(1)->set_logprobs(std::string(4, '\2'));
  const PointEntryPtr entry =
      PointsOfResult(Request(OperationKind::kSample), result.SerializeAsString());
  CHECK(entry->kind == EntryKind::kCounts);
  CHECK(ValuesOf(entry) ==
        std::map<std::string, double>{{"sample/sequences", 2}, {"sample/tokens", 4}});
}

TEST_CASE("Saves are counted; creations and loads have no points", "[series]") {
  CHECK(ValuesOf(PointsOfResult(Request(OperationKind::kSaveWeights), "")) ==
        std::map<std::string, double>{{"save_weights/count", 1}});
  CHECK(PointsOfResult(Request(OperationKind::kCreateModel), "") == nullptr);
  CHECK(PointsOfResult(Request(OperationKind::kLoadWeights), "") == nullptr);
}

TEST_CASE("A damaged result gives no wrong points", "[series]") {
  v1::OperationResult result;
  AddMetric(*result.mutable_forward_backward(), "loss:sum", 1);
  const std::string bytes = result.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto values =
        ValuesOf(PointsOfResult(Request(OperationKind::kForwardBackward), bytes.substr(0, size)));
    if (values.contains("loss:sum")) CHECK(values.at("loss:sum") == 1);
  }
}

}  // namespace
}  // namespace lathe::engine
