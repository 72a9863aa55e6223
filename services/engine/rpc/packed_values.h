// Access to elements of packed little-endian bytes, which need not be aligned.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

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

}  // namespace lathe::engine
