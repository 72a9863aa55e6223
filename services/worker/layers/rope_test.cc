#include "services/worker/layers/rope.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "services/worker/testing/test_diff.h"

namespace lathe::worker {
namespace {

// Numbers of nine digits, made by another version of the same functions.
constexpr double kFrequencyTolerance = 4e-7;

TEST_CASE("ApplyRope: rotates element i with element i + D/2 by position times frequency",
          "[layers]") {
  const RopeTable table({.theta = 100.0}, /*head_dim=*/4, /*num_positions=*/16, at::kCPU);
  const auto [cos, sin] = table.At(at::tensor({3}, at::kLong));
  const at::Tensor x = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({1, 1, 4});
  const at::Tensor y = ApplyRope(x, cos, sin).view({4});
  // Frequencies are theta^0 = 1 and theta^(-1/2) = 0.1.
  CHECK(y[0].item<double>() == Approx(1 * std::cos(3.0) - 3 * std::sin(3.0)).epsilon(1e-5));
  CHECK(y[2].item<double>() == Approx(3 * std::cos(3.0) + 1 * std::sin(3.0)).epsilon(1e-5));
  CHECK(y[1].item<double>() == Approx(2 * std::cos(0.3) - 4 * std::sin(0.3)).epsilon(1e-5));
  CHECK(y[3].item<double>() == Approx(4 * std::cos(0.3) + 2 * std::sin(0.3)).epsilon(1e-5));
}

TEST_CASE("ApplyRope: backward undoes forward", "[layers]") {
  at::manual_seed(3);
  const RopeTable table({.theta = 1e4}, 8, 32, at::kCPU);
  const auto [cos, sin] = table.At(at::tensor({0, 5, 31}, at::kLong));
  const at::Tensor x = at::randn({3, 2, 8});
  CHECK(MaxDiff(ApplyRopeBackward(ApplyRope(x, cos, sin), cos, sin), x) < 1e-6);
}

struct FrequencyCase {
  RopeSpec spec;
  std::vector<float> frequencies;
};

TEST_CASE("RopeFrequencies: every type has the frequencies of transformers", "[layers]") {
  // Transformers 5.23 made the numbers, for `parameters` with the fields of the spec:
  //   config = LlamaConfig(head_dim=16, hidden_size=64, num_attention_heads=4,
  //                        rope_parameters=parameters)
  //   ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")[0]
  // The first case is the linear one times its factor, a power of two. Each branch of llama3 and
  // yarn occurs.
  const FrequencyCase expected = GENERATE(
      values<FrequencyCase>({{{.theta = 1e6},
                              {1.0f, 0.177827939f, 0.0316227786f, 0.00562341325f, 0.00100000005f,
                               0.00017782794f, 3.16227742e-05f, 5.62341347e-06f}},
                             {{.type = RopeType::kLinear, .theta = 1e6, .factor = 8},
                              {0.125f, 0.0222284924f, 0.00395284733f, 0.000702926656f,
                               0.000125000006f, 2.22284925e-05f, 3.95284678e-06f, 7.02926684e-07f}},
                             {{.type = RopeType::kLlama3,
                               .theta = 5e5,
                               .factor = 8,
                               .original_max_position_embeddings = 64},
                              {1.0f, 0.079403013f, 0.00470075384f, 0.000911583134f, 0.000176776681f,
                               3.42810235e-05f, 6.64786967e-06f, 1.28917316e-06f}},
                             {{.type = RopeType::kYarn,
                               .theta = 150000,
                               .factor = 32,
                               .original_max_position_embeddings = 4096,
                               .truncate = false},
                              {1.0f, 0.225418001f, 0.0508132726f, 0.00679495931f, 0.000456483918f,
                               1.8188337e-05f, 4.09997847e-06f, 9.24208962e-07f}},
                             {{.type = RopeType::kYarn,
                               .theta = 1e6,
                               .factor = 4,
                               .original_max_position_embeddings = 32768},
                              {1.0f, 0.177827939f, 0.0316227786f, 0.00421755994f, 0.000500000024f,
                               4.44569851e-05f, 7.90569356e-06f, 1.40585337e-06f}}}));
  const at::Tensor frequencies = RopeFrequencies(expected.spec, /*head_dim=*/16);
  REQUIRE(frequencies.size(0) == 8);
  for (int64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(frequencies[i].item<double>() ==
          Approx(expected.frequencies[i]).epsilon(kFrequencyTolerance));
  }
}

TEST_CASE("RopeTable: angles are products in fp32, and the attention factor scales both tables",
          "[layers]") {
  const RopeTable table({.theta = 1e4, .attention_factor = 1.5}, /*head_dim=*/4,
                        /*num_positions=*/100000, at::kCPU);
  const float angle = 99999.0f * 0.01f;
  CHECK(table.cos()[99999][1].item<double>() == Approx(1.5 * std::cos(angle)).margin(1e-6));
  CHECK(table.sin()[99999][1].item<double>() == Approx(1.5 * std::sin(angle)).margin(1e-6));
}

}  // namespace
}  // namespace lathe::worker
