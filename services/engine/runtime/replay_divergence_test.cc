#include "services/engine/runtime/replay_divergence.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {
namespace {

std::string Pass(const std::vector<float>& logprobs, double loss,
                 const std::string& metric = "loss:sum") {
  v1::OperationResult result;
  v1::ForwardBackwardResult* const pass = result.mutable_forward_backward();
  pass->add_outputs()->set_logprobs(logprobs.data(), logprobs.size() * sizeof(float));
  v1::NamedNumber* const number = pass->add_metrics();
  number->set_name(metric);
  number->set_value(loss);
  return result.SerializeAsString();
}

TEST_CASE("Replay: the difference is the largest of logprobs and metrics", "[runtime]") {
  CHECK(DifferenceOf(Pass({-1, -2}, 3), Pass({-1, -2}, 3)) == 0);
  CHECK(DifferenceOf(Pass({-1, -2}, 3), Pass({-1, -2.5}, 3)) == 0.5);
  CHECK(DifferenceOf(Pass({-1}, 100), Pass({-1}, 101)) == Approx(0.01));
  CHECK(DifferenceOf(Pass({-1}, 0.5), Pass({-1}, 0.25)) == 0.25);
}

TEST_CASE("Replay: a value that only one of two results has counts as infinite", "[runtime]") {
  const std::string first = Pass({-1, -2}, 3);
  CHECK(std::isinf(DifferenceOf(first, Pass({-1}, 3))));
  CHECK(std::isinf(DifferenceOf(first, Pass({-1, -2}, 3, "other"))));
  CHECK(std::isinf(DifferenceOf(first, Pass({-1, std::nanf("")}, 3))));
  v1::OperationResult failed;
  failed.mutable_error()->set_message("no");
  CHECK(std::isinf(DifferenceOf(first, failed.SerializeAsString())));
  CHECK(std::isinf(DifferenceOf(first, "no result")));
}

}  // namespace
}  // namespace lathe::engine
