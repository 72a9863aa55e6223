// Packed little-endian values, which need not be aligned: access to elements, and wider integers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

template <typename T>
class PackedValues {
 public:
  // Trailing bytes that make no whole element are ignored.
  explicit PackedValues(std::string_view bytes) : bytes_(bytes) {}

  int64_t size() const { return static_cast<int64_t>(bytes_.size() / sizeof(T)); }
  T operator[](int64_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::string_view bytes_;
};

// Returns true if an input other than target_tokens has an integer dtype.
bool HasIntegerNumbers(const v1::ForwardBackwardRequest& request);

// Returns the request with those inputs as float32. An input with an integer that float32 cannot
// represent exactly is not changed.
v1::ForwardBackwardRequest WidenIntegers(v1::ForwardBackwardRequest request);

}  // namespace lathe::engine
