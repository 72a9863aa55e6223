#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>

#include "services/worker/layers/base_linear.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

struct Shape {
  int64_t rows, in, out;
};

// Storage dtype and arithmetic of a matrix.
struct Way {
  at::ScalarType dtype;
  MatmulArithmetic arithmetic;
};

std::vector<Way> Ways() {
  std::vector<Way> ways = {{at::kFloat, MatmulArithmetic::kFp32},
                           {at::kBFloat16, MatmulArithmetic::kFp32}};
  if (CpuHasBf16()) {
    ways.push_back({at::kBFloat16, MatmulArithmetic::kBf16});
  } else {
    WARN("this CPU does not multiply bf16: only the fp32 kernels are tested");
  }
  return ways;
}

at::Tensor Rounded(const at::Tensor& x, MatmulArithmetic arithmetic) {
  return (arithmetic == MatmulArithmetic::kBf16 ? x.to(at::kBFloat16) : x).to(at::kDouble);
}

// Returns the largest difference in units of the expected fp32 rounding error of such a sum.
double Error(const at::Tensor& y, const at::Tensor& expected, int64_t num_terms) {
  REQUIRE(y.sizes() == expected.sizes());
  return (y.to(at::kDouble) - expected).abs().max().item<double>() /
         (1e-6 * static_cast<double>(num_terms));
}

}  // namespace

TEST_CASE("BaseLinear: the product of the matrix's exact values", "[layers][base_linear]") {
  at::manual_seed(3);
  // Whole and partial panels, depths beyond one panel, odd inner sizes, and each remainder of rows.
  const Shape shape =
      GENERATE(Shape{1, 32, 64}, Shape{5, 300, 130}, Shape{9, 37, 70}, Shape{64, 128, 200},
               Shape{13, 1313, 65}, Shape{7, 65, 1100}, Shape{3, 2, 1}, Shape{40, 1030, 2100});
  const auto [dtype, arithmetic] = GENERATE(from_range(Ways()));
  const at::Tensor matrix = at::randn({shape.out, shape.in}).to(dtype);
  const BaseWeight w(matrix);
  const at::Tensor x = at::randn({shape.rows, shape.in});
  const at::Tensor dy = at::randn({shape.rows, shape.out});
  const at::Tensor bias = at::randn({shape.out});
  const at::Tensor residual = at::randn({shape.rows, shape.out});
  const at::Tensor exact = at::mm(Rounded(x, arithmetic), matrix.to(at::kDouble).t());

  CHECK(Error(BaseLinear(x, w, {}, arithmetic), exact, shape.in) < 1);
  CHECK(Error(BaseLinear(x, w, bias, arithmetic), exact + bias, shape.in) < 1);
  CHECK(Error(BaseLinearOnto(residual, x, w, {}, arithmetic), exact + residual, shape.in) < 1);
  CHECK(Error(BaseLinearOnto(residual, x, w, bias, arithmetic), exact + residual + bias, shape.in) <
        1);
  CHECK(Error(BaseLinearBackward(dy, w, arithmetic),
              at::mm(Rounded(dy, arithmetic), matrix.to(at::kDouble)), shape.out) < 1);
}

TEST_CASE("RoundToBf16: as torch rounds, but for numbers that products take as zero",
          "[layers][base_linear]") {
  if (!CpuHasBf16()) {
    WARN("this CPU does not multiply bf16: nothing to test");
    return;
  }
  at::manual_seed(4);
  const int64_t size = GENERATE(1, 15, 16, 31, 32, 33, 1000);
  const int64_t guard = 8;
  // Arbitrary bits: all exponents, infinities, NaN.
  const at::Tensor x = at::randint(INT32_MIN, int64_t{INT32_MAX} + 1, {size}, at::kLong)
                           .to(at::kInt)
                           .view(at::kFloat);
  const at::Tensor is_small = x.abs() < std::numeric_limits<float>::min();
  const at::Tensor expected = at::where(is_small, at::zeros_like(x), x).to(at::kBFloat16);
  const at::Tensor y = at::ones({size + guard}, at::kBFloat16);
  RoundToBf16(x.const_data_ptr<float>(),
              reinterpret_cast<uint16_t*>(y.mutable_data_ptr<at::BFloat16>()), size);
  const at::Tensor rounded = y.narrow(0, 0, size);
  CHECK(at::equal(rounded.isnan(), x.isnan()));
  CHECK(at::equal(rounded.nan_to_num(), expected.nan_to_num()));
  CHECK(at::equal(y.narrow(0, size, guard), at::ones({guard}, at::kBFloat16)));
}

TEST_CASE("BaseLinear: its arguments stay as they are", "[layers][base_linear]") {
  const auto [dtype, arithmetic] = GENERATE(from_range(Ways()));
  const BaseWeight w(at::ones({64, 32}).to(dtype));
  const at::Tensor bias = at::ones({64});
  const at::Tensor residual = at::ones({1, 64});
  const at::Tensor y = BaseLinear(at::ones({1, 32}), w, bias, arithmetic);
  CHECK(at::equal(y, at::full({1, 64}, 33.0f)));
  CHECK(at::equal(bias, at::ones({64})));
  BaseLinearOnto(residual, at::ones({1, 32}), w, bias, arithmetic);
  CHECK(at::equal(bias, at::ones({64})));
  CHECK(at::equal(residual, at::ones({1, 64})));
}

TEST_CASE("BaseLinear: a row's bits depend on nothing but the row", "[layers][base_linear]") {
  at::manual_seed(4);
  const auto [dtype, arithmetic] = GENERATE(from_range(Ways()));
  const BaseWeight w(at::randn({200, 300}).to(dtype));
  const at::Tensor x = at::randn({40, 300});
  const at::Tensor dy = at::randn({40, 200});
  const at::Tensor y = BaseLinear(x, w, {}, arithmetic);
  const at::Tensor dx = BaseLinearBackward(dy, w, arithmetic);
  for (int64_t size = 1; size <= 39; ++size) {
    const int64_t begin = GENERATE_COPY(take(1, random<int64_t>(0, 1)));
    CAPTURE(begin, size);
    CHECK(at::equal(BaseLinear(x.narrow(0, begin, size), w, {}, arithmetic),
                    y.narrow(0, begin, size)));
    CHECK(at::equal(BaseLinearBackward(dy.narrow(0, begin, size), w, arithmetic),
                    dx.narrow(0, begin, size)));
  }
}

TEST_CASE("BaseLinear: rows of a wider matrix, and of a transposed one", "[layers][base_linear]") {
  at::manual_seed(5);
  const auto [dtype, arithmetic] = GENERATE(from_range(Ways()));
  const BaseWeight w(at::randn({64, 48}).to(dtype));
  const at::Tensor wide = at::randn({7, 100});
  const at::Tensor part = wide.narrow(1, 20, 48);
  CHECK(at::equal(BaseLinear(part, w, {}, arithmetic),
                  BaseLinear(part.contiguous(), w, {}, arithmetic)));
  const at::Tensor transposed = at::randn({48, 7}).t();
  CHECK(at::equal(BaseLinear(transposed, w, {}, arithmetic),
                  BaseLinear(transposed.contiguous(), w, {}, arithmetic)));
}

TEST_CASE("BaseLinear: not a number and infinity reach the rows they are in, and no other",
          "[layers][base_linear]") {
  at::manual_seed(6);
  const auto [dtype, arithmetic] = GENERATE(from_range(Ways()));
  const BaseWeight w(at::randn({64, 48}).to(dtype));
  at::Tensor x = at::randn({3, 48});
  x[1][5] =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const at::Tensor is_finite = at::isfinite(BaseLinear(x, w, {}, arithmetic)).all(1);
  CHECK(is_finite[0].item<bool>());
  CHECK_FALSE(is_finite[1].item<bool>());
  CHECK(is_finite[2].item<bool>());
}

}  // namespace lathe::worker
