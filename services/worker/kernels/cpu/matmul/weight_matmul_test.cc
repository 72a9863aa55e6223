#include "services/worker/kernels/cpu/matmul/weight_matmul.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"

namespace lathe::worker {

#define LATHE_DECLARE_VARIANT(NAME)                                                                \
  void MatmulTransposed##NAME(const WeightMatmulTask& task, MatmulArithmetic arithmetic,           \
                              int64_t begin, int64_t end);                                         \
  void MatmulPlain##NAME(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin, \
                         int64_t end);
LATHE_DECLARE_VARIANT(Avx2)   // weight_matmul_avx2.cc
LATHE_DECLARE_VARIANT(Plain)  // weight_matmul_plain.cc
#undef LATHE_DECLARE_VARIANT

namespace {

using Product = void (*)(const WeightMatmulTask&, MatmulArithmetic, int64_t, int64_t);

// A variant of a product: the matrix's dtype, the arithmetic, and the instructions.
struct Way {
  const char* name;
  bool is_bf16;
  MatmulArithmetic arithmetic;
  Product transposed;
  Product plain;
};

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const bool is_bf16 : {false, true}) {
    ways.push_back({"this CPU's", is_bf16, MatmulArithmetic::kFp32, MatmulTransposed, MatmulPlain});
    ways.push_back(
        {"plain", is_bf16, MatmulArithmetic::kFp32, MatmulTransposedPlain, MatmulPlainPlain});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      ways.push_back(
          {"AVX2", is_bf16, MatmulArithmetic::kFp32, MatmulTransposedAvx2, MatmulPlainAvx2});
    }
  }
  if (CpuHasBf16()) {
    ways.push_back({"bf16", true, MatmulArithmetic::kBf16, MatmulTransposed, MatmulPlain});
  }
  return ways;
}

// Returns numbers that bf16 represents exactly, so that every variant multiplies the same numbers.
std::vector<float> RandomWeights(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> uniform(-128, 128);
  std::vector<float> numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = static_cast<float>(uniform(random)) / 64;
  return numbers;
}

uint16_t Half(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// Returns `numbers` as bf16, with rows of `width` padded to `stride`.
std::vector<uint16_t> Halves(const std::vector<float>& numbers, int64_t width, int64_t stride) {
  const int64_t num_rows = static_cast<int64_t>(numbers.size()) / width;
  std::vector<uint16_t> halves(static_cast<size_t>(num_rows * stride), 0);
  for (int64_t i = 0; i < num_rows * width; ++i) {
    halves[i / width * stride + i % width] = Half(numbers[i]);
  }
  return halves;
}

struct WeightShape {
  int64_t n, k;
};

// A matrix in panels.
struct Matrix {
  Matrix(const WeightShape& shape, bool is_bf16) : numbers(RandomWeights(shape.n * shape.k, 1)) {
    panels = {.data = nullptr, .is_bf16 = is_bf16, .n = shape.n, .k = shape.k};
    memory = AllocateHugePages(panels.NumBytes());
    panels.data = memory.get();
    const std::vector<uint16_t> halves = Halves(numbers, shape.k, shape.k);
    const void* rows = is_bf16 ? static_cast<const void*>(halves.data()) : numbers.data();
    SetPanelRows(panels, memory.get(), rows, 0, shape.n, 0, panels.NumPanels());
  }

  std::vector<float> numbers;
  WeightPanels panels;
  std::shared_ptr<void> memory;
};

constexpr int64_t kGuard = 3;  // numbers after each row of y that must not change

// Returns y for x [num_rows, inner] by `product`, starting from `y`.
std::vector<float> Multiply(const Matrix& matrix, const Way& way, Product product,
                            const std::vector<float>& x, int64_t num_rows, int64_t outer,
                            bool accumulate, std::vector<float> y) {
  const int64_t inner = static_cast<int64_t>(x.size()) / num_rows;
  const int64_t padded = (inner + 1) / 2 * 2;
  const std::vector<uint16_t> halves = Halves(x, inner, padded);
  const bool is_bf16 = way.arithmetic == MatmulArithmetic::kBf16;
  const WeightMatmulTask task = {.weight = matrix.panels,
                                 .x = is_bf16 ? static_cast<const void*>(halves.data()) : x.data(),
                                 .x_stride = is_bf16 ? padded : inner,
                                 .y = y.data(),
                                 .y_stride = outer + kGuard,
                                 .num_rows = num_rows,
                                 .accumulate = accumulate};
  const int64_t num_panels = (outer + kMatmulPanel - 1) / kMatmulPanel;
  const int64_t middle = num_panels / 2;
  product(task, way.arithmetic, middle, num_panels);
  product(task, way.arithmetic, 0, middle);
  return y;
}

// Computes the same from the definition in fp64. `weight(i, o)` is the factor of input i in output
// o.
template <typename F>
std::vector<float> Expected(const F& weight, const std::vector<float>& x, int64_t num_rows,
                            int64_t outer, bool accumulate, std::vector<float> y) {
  const int64_t inner = static_cast<int64_t>(x.size()) / num_rows;
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t o = 0; o < outer; ++o) {
      float& out = y[m * (outer + kGuard) + o];
      double sum = accumulate ? out : 0;
      for (int64_t i = 0; i < inner; ++i) {
        sum += static_cast<double>(x[m * inner + i]) * weight(i, o);
      }
      out = static_cast<float>(sum);
    }
  }
  return y;
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::fabs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("Weight matmul: both products from the definition, whatever the instructions",
          "[kernels][weight_matmul]") {
  const Way way = GENERATE(from_range(Ways()));
  // Odd and narrow shapes, whole panels, sums beyond one part of a panel.
  const auto [n, k] = GENERATE(WeightShape{1, 1}, WeightShape{64, 32}, WeightShape{65, 33},
                               WeightShape{130, 7}, WeightShape{70, 1100}, WeightShape{1100, 66});
  const bool accumulate = GENERATE(false, true);
  const Matrix matrix({n, k}, way.is_bf16);
  CAPTURE(way.name, way.is_bf16, n, k, accumulate);
  // Products are multiples of 2^-12 and sums are below 2^12, so sums are exact.
  for (const int64_t num_rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31, 40}) {
    CAPTURE(num_rows);
    const std::vector<float> x = RandomWeights(num_rows * k, 2);
    const std::vector<float> y = RandomWeights(num_rows * (n + kGuard), 3);
    const auto transposed = [&, stride = k](int64_t i, int64_t o) {
      return static_cast<double>(matrix.numbers[o * stride + i]);
    };
    CHECK(Difference(Multiply(matrix, way, way.transposed, x, num_rows, n, accumulate, y),
                     Expected(transposed, x, num_rows, n, accumulate, y)) == 0);

    const std::vector<float> dy = RandomWeights(num_rows * n, 4);
    const std::vector<float> dx = RandomWeights(num_rows * (k + kGuard), 5);
    const auto plain = [&, stride = k](int64_t i, int64_t o) {
      return static_cast<double>(matrix.numbers[i * stride + o]);
    };
    CHECK(Difference(Multiply(matrix, way, way.plain, dy, num_rows, k, accumulate, dx),
                     Expected(plain, dy, num_rows, k, accumulate, dx)) == 0);
  }
}

TEST_CASE("Weight matmul: a row has the same bits among any number of rows",
          "[kernels][weight_matmul]") {
  const Way way = GENERATE(from_range(Ways()));
  CAPTURE(way.name, way.is_bf16);
  constexpr WeightShape kShape = {70, 2100};
  constexpr int64_t kRows = 40;
  Matrix matrix(kShape, way.is_bf16);
  std::vector<float> x = RandomWeights(kRows * kShape.k, 2);
  for (float& number : x) number *= 1.01f;  // so that sums round
  const std::vector<float> y(kRows * (kShape.n + kGuard), 0.0f);
  const std::vector<float> all =
      Multiply(matrix, way, way.transposed, x, kRows, kShape.n, /*accumulate=*/false, y);
  for (int64_t num_rows = 1; num_rows < kRows; ++num_rows) {
    CAPTURE(num_rows);
    const std::vector<float> last(x.end() - num_rows * kShape.k, x.end());
    const std::vector<float> rows =
        Multiply(matrix, way, way.transposed, last, num_rows, kShape.n, /*accumulate=*/false,
                 std::vector<float>(num_rows * (kShape.n + kGuard), 0.0f));
    CHECK(std::equal(rows.begin(), rows.end(), all.end() - static_cast<int64_t>(rows.size())));
  }
}

}  // namespace lathe::worker
