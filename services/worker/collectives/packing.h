// Byte encoding of messages between ranks, which run one program on machines of one kind.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lathe::worker {

// Appends values to a byte string. Numbers take 8 bytes in the machine's byte order. Elements of
// vectors are copied as they lie in memory. Texts and vectors follow their size.
class PackWriter {
 public:
  void Number(int64_t value) { Raw(&value, sizeof(value)); }
  void Text(std::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    out_.append(text);
  }
  template <typename T>
  void Values(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Number(static_cast<int64_t>(values.size()));
    Raw(values.data(), values.size() * sizeof(T));
  }
  std::string Take() { return std::move(out_); }

 private:
  void Raw(const void* data, size_t num_bytes) {
    out_.append(static_cast<const char*>(data), num_bytes);
  }

  std::string out_;
};

// Reads what PackWriter wrote. Once the input is too short, all further values are zero or empty
// and is_damaged() returns true.
class PackReader {
 public:
  explicit PackReader(std::string_view rest) : rest_(rest) {}

  int64_t Number() {
    int64_t value = 0;
    const std::string_view bytes = Bytes(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Bytes(Number())); }
  template <typename T>
  std::vector<T> Values() {
    const int64_t size = Number();
    const bool is_possible = size >= 0 && size <= static_cast<int64_t>(rest_.size() / sizeof(T));
    const std::string_view bytes = Bytes(is_possible ? size * static_cast<int64_t>(sizeof(T)) : -1);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  bool is_at_end() const { return rest_.empty(); }
  bool is_damaged() const { return is_damaged_; }

 private:
  std::string_view Bytes(int64_t size) {
    if (size < 0 || size > static_cast<int64_t>(rest_.size())) {
      is_damaged_ = true;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
  bool is_damaged_ = false;
};

}  // namespace lathe::worker
