#include "services/worker/layers/base_weight.h"
#include "services/worker/torch/aten.h"

#include <catch2/catch.hpp>

#include <cstdint>

namespace lathe::worker {
namespace {

at::Tensor AllRows(const BaseWeight& weight) {
  return weight.Rows(at::arange(weight.n(), at::kLong));
}

}  // namespace

TEST_CASE("BaseWeight: gives back the matrix it was made of", "[layers][base_weight]") {
  at::manual_seed(1);
  const int64_t n = GENERATE(1, 15, 64, 65, 200);
  const int64_t k = GENERATE(1, 2, 31, 32, 33, 100);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor matrix = at::randn({n, k}).to(dtype);
  const BaseWeight weight(matrix);
  CHECK(weight.n() == n);
  CHECK(weight.k() == k);
  CHECK(weight.dtype() == dtype);
  CHECK(at::equal(weight.ToTensor(), matrix));
  CHECK(at::equal(AllRows(weight), matrix.to(at::kFloat)));
}

TEST_CASE("BaseWeight: parts set one after another, in any order, make one matrix",
          "[layers][base_weight]") {
  at::manual_seed(2);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor matrix = at::randn({300, 37}).to(dtype);
  const int64_t cut = GENERATE(1, 16, 17, 64, 70, 299);
  BaseWeight weight(300, 37, dtype, at::kCPU);
  weight.SetRows(cut, matrix.narrow(0, cut, 300 - cut));
  weight.SetRows(0, matrix.narrow(0, 0, cut));
  CHECK(at::equal(weight.ToTensor(), matrix));
}

TEST_CASE("BaseWeight: takes rows of other dtypes, and more than it converts at a time",
          "[layers][base_weight]") {
  at::manual_seed(3);
  const at::ScalarType dtype = GENERATE(at::kHalf, at::kBFloat16, at::kDouble);
  const at::Tensor halves = at::randn({9000, 3}).to(dtype);
  BaseWeight weight(9010, 3, at::kFloat, at::kCPU);
  weight.SetRows(7, halves);
  CHECK(at::equal(weight.ToTensor().narrow(0, 7, 9000), halves.to(at::kFloat)));
  CHECK(at::equal(weight.ToTensor().narrow(0, 0, 7), at::zeros({7, 3})));
}

TEST_CASE("BaseWeight: in given memory, whose bytes elsewhere are the matrix there",
          "[layers][base_weight]") {
  at::manual_seed(5);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor matrix = at::randn({130, 37}).to(dtype);
  const int64_t num_bytes = BaseWeight::NumBytes(130, 37, dtype, at::kCPU);
  const auto memory = [&] {
    return at::zeros({num_bytes + 64}, at::kByte).narrow(0, 64, num_bytes);
  };
  const at::Tensor first = memory(), second = memory();
  BaseWeight weight(130, 37, dtype, first);
  weight.SetRows(0, matrix);
  const BaseWeight same(130, 37, dtype, second);
  CHECK(same.NumBytes() == num_bytes);
  CHECK(at::equal(same.ToTensor(), at::zeros({130, 37}, dtype)));
  second.copy_(first);
  CHECK(at::equal(same.ToTensor(), matrix));
  CHECK_THROWS_AS(BaseWeight(131, 64, dtype, first), c10::Error);
}

TEST_CASE("BaseWeight: rows by index, some twice; an index outside throws",
          "[layers][base_weight]") {
  at::manual_seed(4);
  const at::Tensor matrix = at::randn({70, 10});
  const BaseWeight weight(matrix);
  const at::Tensor indices = at::tensor({69, 0, 69, 64, 3}, at::kLong);
  CHECK(at::equal(weight.Rows(indices), matrix.index_select(0, indices)));
  CHECK_THROWS(weight.Rows(at::tensor({70}, at::kLong)));
  CHECK_THROWS(weight.Rows(at::tensor({-1}, at::kLong)));
}

TEST_CASE("BaseWeight: rows that do not fit throw", "[layers][base_weight]") {
  BaseWeight weight(10, 4, at::kFloat, at::kCPU);
  CHECK_THROWS(weight.SetRows(8, at::zeros({3, 4})));
  CHECK_THROWS(weight.SetRows(0, at::zeros({3, 5})));
}

TEST_CASE("BaseWeight: counts its memory, which copies share", "[layers][base_weight]") {
  const BaseWeight weight(at::ones({65, 3}).to(at::kBFloat16));
  CHECK(weight.NumBytes() == 2 * 64 * 4 * 2);  // two panels of rows padded to four numbers
  const BaseWeight copy = weight;
  CHECK(copy.SharesMemoryWith(weight));
  CHECK_FALSE(BaseWeight(weight.ToTensor()).SharesMemoryWith(weight));
}

}  // namespace lathe::worker
