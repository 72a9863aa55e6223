// Rows of numbers on the emulated device, and their comparison with a reference, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/emulation/cuda/cuda_bf16.h"
#include "services/worker/kernels/emulation/device_buffer.h"

namespace lathe::worker::emulation {

using Floats = std::vector<float>;
using Bf16 = __nv_bfloat16;

// Sums of a kernel and of its reference have other orders, and expf, tanhf and rsqrtf other
// roundings: relative to the number and to the size of all numbers.
inline constexpr float kFloatTolerance = 1e-5f;
// bf16 keeps 8 bits of a number.
template <typename T>
constexpr float kRounding = std::is_same_v<T, float> ? 0 : 1.0f / 256;

template <typename T>
T Rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return __float2bfloat16(x);
  }
}

inline float ToFloat(float x) { return x; }
inline float ToFloat(Bf16 x) { return __bfloat162float(x); }

// Returns numbers of T's precision in [-1, 1].
template <typename T = float>
Floats Random(int64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = ToFloat(Rounded<T>(uniform(random)));
  return numbers;
}

// Places of rows in a buffer: a gap follows each, and `offset` numbers come first.
struct RowLayout {
  int64_t num_rows;
  int64_t width;
  int64_t gap = 0;
  int64_t offset = 0;

  int64_t stride() const { return width + gap; }
  int64_t size() const { return offset + num_rows * stride(); }
};

// Rows of T in such a buffer.
template <typename T>
class TestRows {
 public:
  // Rows that nobody has written.
  TestRows(std::string name, const RowLayout& layout)
      : layout_(layout), buffer_(std::move(name), static_cast<size_t>(layout.size())) {}

  TestRows(std::string name, const RowLayout& layout, const Floats& numbers,
           Contents contents = Contents::kConstants)
      : layout_(layout), buffer_(std::move(name), Spread(layout, numbers), contents) {}

  T* data() { return buffer_.data() + layout_.offset; }
  const RowLayout& layout() const { return layout_; }

  Floats numbers() const {
    Floats numbers;
    for (int64_t row = 0; row < layout_.num_rows; ++row) {
      const int64_t first = layout_.offset + row * layout_.stride();
      for (int64_t i = 0; i < layout_.width; ++i) numbers.push_back(ToFloat(buffer_[first + i]));
    }
    return numbers;
  }

  // Says whether kernels have written the rows and nothing between them.
  bool IsWritten() const {
    const int64_t others = layout_.size() - layout_.num_rows * layout_.width;
    return buffer_.num_unwritten_bytes() == static_cast<size_t>(others) * sizeof(T);
  }

 private:
  // Between the rows lie numbers that would spoil every result.
  static std::vector<T> Spread(const RowLayout& layout, const Floats& numbers) {
    std::vector<T> all(static_cast<size_t>(layout.size()), Rounded<T>(NAN));
    for (int64_t row = 0; row < layout.num_rows; ++row) {
      for (int64_t i = 0; i < layout.width; ++i) {
        all[layout.offset + row * layout.stride() + i] =
            Rounded<T>(numbers[row * layout.width + i]);
      }
    }
    return all;
  }

  const RowLayout layout_;
  DeviceBuffer<T> buffer_;
};

// Checks each number that a kernel rounded to T.
template <typename T>
void CheckClose(const Floats& numbers, const Floats& expected, float tolerance = kFloatTolerance) {
  REQUIRE(numbers.size() == expected.size());
  double squares = 0;
  for (const float number : expected) squares += double{number} * number;
  const auto size = static_cast<float>(std::sqrt(squares / static_cast<double>(expected.size())));
  int64_t num_different = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float bound = (tolerance + kRounding<T>)*std::abs(expected[i]) + tolerance * size;
    if (std::abs(numbers[i] - expected[i]) <= bound) continue;
    if (num_different++ == 0) {
      UNSCOPED_INFO("number " << i << " is " << numbers[i] << ", not " << expected[i]);
    }
  }
  CHECK(num_different == 0);
}

}  // namespace lathe::worker::emulation
