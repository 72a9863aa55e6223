#include "services/worker/kernels/cpu/lora/lora_kernel.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lathe::worker {

#define LATHE_DECLARE_VARIANT(NAME)                                                  \
  void LoraDots##NAME(const LoraDotsTask& task, int64_t begin_row, int64_t end_row); \
  void LoraSums##NAME(const LoraSumsTask& task, int64_t begin_row, int64_t end_row,  \
                      int64_t begin_column, int64_t end_column);                     \
  void AddLoraGradient##NAME(const LoraGradientTask& task, int64_t begin_column,     \
                             int64_t end_column);
LATHE_DECLARE_VARIANT(Avx2)   // lora_kernel_avx2.cc
LATHE_DECLARE_VARIANT(Plain)  // lora_kernel_plain.cc
#undef LATHE_DECLARE_VARIANT

namespace {

using Numbers = std::vector<float>;

Numbers Random(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Numbers numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = uniform(random);
  return numbers;
}

template <typename T>
std::vector<T*> RowsOf(T* data, int64_t num_rows, int64_t width) {
  std::vector<T*> rows;
  for (int64_t i = 0; i < num_rows; ++i) rows.push_back(data + i * width);
  return rows;
}

struct Shape {
  int64_t num_rows;
  int64_t width;
  int64_t num_factors;
};

// Results of the three kernels.
struct Results {
  Numbers dots;
  Numbers sums;
  Numbers gradients;
};

template <typename Dots, typename Sums, typename Gradient>
Results Run(const Shape& shape, const Dots& dots, const Sums& sums, const Gradient& gradient) {
  const auto& [num_rows, width, num_factors] = shape;
  const Numbers x = Random(num_rows * width, 1);
  const Numbers factors = Random(num_factors * width, 2);
  const Numbers c = Random(num_rows * num_factors, 3);
  Results results{Numbers(c.size()), Random(num_rows * width, 4), Random(num_factors * width, 5)};
  const auto rows = RowsOf(factors.data(), num_factors, width);
  const auto gradients = RowsOf(results.gradients.data(), num_factors, width);
  dots(LoraDotsTask{x.data(), width, width, rows.data(), num_factors, 0.5f, results.dots.data(),
                    num_factors},
       0, num_rows);
  sums(LoraSumsTask{c.data(), num_factors, rows.data(), num_factors, results.sums.data(), width}, 0,
       num_rows, 0, width);
  gradient(LoraGradientTask{c.data(), num_factors, x.data(), width, num_rows, gradients.data(),
                            num_factors},
           0, width);
  return results;
}

Results RunWide(const Shape& shape) { return Run(shape, LoraDots, LoraSums, AddLoraGradient); }

Results InDoubles(const Shape& shape) {
  const auto dots = [](const LoraDotsTask& t, int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t j = 0; j < t.num_factors; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < t.width; ++k) {
          sum += double{t.x[m * t.x_stride + k]} * t.factors[j][k];
        }
        t.out[m * t.out_stride + j] = static_cast<float>(sum * t.scale);
      }
    }
  };
  const auto sums = [](const LoraSumsTask& t, int64_t begin, int64_t end, int64_t from,
                       int64_t to) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t n = from; n < to; ++n) {
        double sum = t.y[m * t.y_stride + n];
        for (int64_t j = 0; j < t.num_factors; ++j) {
          sum += double{t.c[m * t.c_stride + j]} * t.factors[j][n];
        }
        t.y[m * t.y_stride + n] = static_cast<float>(sum);
      }
    }
  };
  const auto gradient = [](const LoraGradientTask& t, int64_t from, int64_t to) {
    for (int64_t j = 0; j < t.num_factors; ++j) {
      for (int64_t n = from; n < to; ++n) {
        double sum = t.gradients[j][n];
        for (int64_t m = 0; m < t.num_rows; ++m) {
          sum += double{t.c[m * t.c_stride + j]} * t.v[m * t.v_stride + n];
        }
        t.gradients[j][n] = static_cast<float>(sum);
      }
    }
  };
  return Run(shape, dots, sums, gradient);
}

// Tolerance of sums of up to 700 products of numbers below one.
constexpr double kTolerance = 2e-5;

double LargestDifference(const Numbers& a, const Numbers& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

void CheckClose(const Results& a, const Results& b) {
  CHECK(LargestDifference(a.dots, b.dots) < kTolerance);
  CHECK(LargestDifference(a.sums, b.sums) < kTolerance);
  CHECK(LargestDifference(a.gradients, b.gradients) < kTolerance);
}

// Whole and partial tiles of rows, stretches of the inner index, vectors and groups of factors.
Shape AnyShape() {
  return GENERATE(Shape{1, 1, 1}, Shape{3, 17, 2}, Shape{4, 64, 4}, Shape{37, 530, 33},
                  Shape{66, 128, 9}, Shape{70, 700, 5});
}

bool CpuHasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

TEST_CASE("LoRA kernels: results are those of sums in fp64", "[kernels]") {
  const Shape shape = AnyShape();
  CheckClose(RunWide(shape), InDoubles(shape));
}

TEST_CASE("LoRA kernels: AVX2 gives the bits of AVX-512", "[kernels]") {
  if (!CpuHasAvx2()) {
    WARN("not tested: this CPU has no AVX2");
    return;
  }
  const Shape shape = AnyShape();
  const Results wide = RunWide(shape);
  const Results narrow = Run(shape, LoraDotsAvx2, LoraSumsAvx2, AddLoraGradientAvx2);
  CHECK(narrow.dots == wide.dots);
  CHECK(narrow.sums == wide.sums);
  CHECK(narrow.gradients == wide.gradients);
}

// Without FMA, multiply-adds round twice: other bits, the same numbers within the tolerance.
TEST_CASE("LoRA kernels: a CPU without AVX2 gets the same numbers", "[kernels]") {
  const Shape shape = AnyShape();
  CheckClose(Run(shape, LoraDotsPlain, LoraSumsPlain, AddLoraGradientPlain), InDoubles(shape));
}

TEST_CASE("LoRA kernels: bits of a row do not depend on the rows around it", "[kernels]") {
  const Shape shape{37, 530, 33};
  const Results whole = RunWide(shape);
  const int64_t row = GENERATE(0, 5, 32, 36);
  const auto one = Run(
      shape, [&](const LoraDotsTask& t, int64_t, int64_t) { LoraDots(t, row, row + 1); },
      [&](const LoraSumsTask& t, int64_t, int64_t, int64_t from, int64_t to) {
        LoraSums(t, row, row + 1, from, from + 100);
        LoraSums(t, row, row + 1, from + 100, to);
      },
      [](const LoraGradientTask& t, int64_t from, int64_t to) {
        AddLoraGradient(t, from, from + 33);
        AddLoraGradient(t, from + 33, to);
      });
  for (int64_t j = 0; j < shape.num_factors; ++j) {
    const auto at = static_cast<size_t>(row * shape.num_factors + j);
    CHECK(one.dots[at] == whole.dots[at]);
  }
  for (int64_t n = 0; n < shape.width; ++n) {
    const auto at = static_cast<size_t>(row * shape.width + n);
    REQUIRE(one.sums[at] == whole.sums[at]);
  }
  CHECK(one.gradients == whole.gradients);
}

}  // namespace lathe::worker
