#include "services/engine/core/base_models.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

TEST_CASE("Base models: one stays served while its worker is away", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.DetachWorker(/*process_gone=*/true);
  h.RestartEngine();
  CHECK_FALSE(h.AnswerTo(h.CreateModel(session, 0)).error.has_value());
  CHECK_FALSE(h.AnswerTo(h.Sampler(session, 0, "")).error.has_value());
}

TEST_CASE("Base models: one whose group has another now is refused by name", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.RunWorker();
  h.Sampler(h.session, 0, "");
  h.AttachWorker("p2", /*ready=*/true, "other");
  const LoadArgs load{.path = "tinker://" + h.model + "/weights/a", .creates_model = true};
  for (const CallId call :
       {h.CreateModel(h.session, 1), h.Sampler(h.session, 1, ""),
        h.Sample(h.session + ":sample:0", 1),
        h.SubmitArgs(h.session, OpClass::kModel, 1, OperationKind::kLoadWeights, load)}) {
    REQUIRE(h.AnswerTo(call).error.has_value());
    CHECK(h.AnswerTo(call).error->status == absl::StatusCode::kNotFound);
    CHECK(h.AnswerTo(call).error->code == "unknown_base_model");
    CHECK(h.AnswerTo(call).error->message == "base_model base not found; served: other");
  }
}

TEST_CASE("Base models: requests for a model that is no longer served fail and say so", "[core]") {
  SamplerHarness h;
  h.DetachWorker(/*process_gone=*/true);
  const CallId create = h.CreateModel(h.session, 0);
  const CallId sample = h.Sample(h.sampler, 1);
  h.RestartEngine();
  h.AttachWorker("p2", /*ready=*/false, "other");
  REQUIRE(h.Done(create));
  CHECK(h.ErrorOf(create)->message.find("base_model base not found") != std::string::npos);
  REQUIRE(h.Done(sample));
  CHECK(h.ErrorOf(sample)->code == "unknown_base_model");
}

TEST_CASE("Base models: one that comes back is served again", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.AttachWorker("p2", /*ready=*/true, "other");
  h.AttachWorker("p3");
  CHECK_FALSE(h.AnswerTo(h.CreateModel(session, 0)).error.has_value());
}

}  // namespace
}  // namespace lathe::engine
