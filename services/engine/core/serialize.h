// Serialization of plain structs without listing their fields. Used by the plan in a request's row.
// Numbers are LEB128 words; strings and lists have a length prefix, variants an index. A changed
// struct is a changed format.
#pragma once

#include <bit>
#include <boost/pfr/core.hpp>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lathe::engine {
namespace serialize_internal {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVariant : std::false_type {};
template <typename... T>
struct IsVariant<std::variant<T...>> : std::true_type {};
template <typename T>
struct IsPair : std::false_type {};
template <typename A, typename B>
struct IsPair<std::pair<A, B>> : std::true_type {};

}  // namespace serialize_internal

// Appends to `out`, which must outlive this object.
class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}

  template <typename T>
  void Write(const T& value) {
    using namespace serialize_internal;
    if constexpr (std::is_floating_point_v<T>) {
      WriteWord(std::bit_cast<uint64_t>(static_cast<double>(value)));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      WriteWord(static_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      WriteWord(value.size());
      out_.append(value);
    } else if constexpr (IsVector<T>::value) {
      WriteWord(value.size());
      for (const auto& one : value) Write(one);
    } else if constexpr (IsOptional<T>::value) {
      WriteWord(value.has_value());
      if (value) Write(*value);
    } else if constexpr (IsPair<T>::value) {
      Write(value.first);
      Write(value.second);
    } else if constexpr (IsVariant<T>::value) {
      WriteWord(value.index());
      std::visit([this](const auto& one) { this->Write(one); }, value);
    } else {
      boost::pfr::for_each_field(value, [this](const auto& field) { this->Write(field); });
    }
  }

 private:
  // LEB128, since most numbers are small.
  void WriteWord(uint64_t word) {
    while (word >= 0x80) {
      out_.push_back(static_cast<char>(word | 0x80));
      word >>= 7;
    }
    out_.push_back(static_cast<char>(word));
  }

  std::string& out_;
};

// Reads the output of a Writer. Any other bytes give ok() == false, never a crash.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void Read(T& value) {
    using namespace serialize_internal;
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(std::bit_cast<double>(ReadWord()));
    } else if constexpr (std::is_same_v<T, bool>) {
      value = ReadWord() != 0;
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      value = static_cast<T>(ReadWord());
    } else if constexpr (std::is_same_v<T, std::string>) {
      const uint64_t size = ReadSize();
      value.assign(rest_.substr(0, size));
      rest_.remove_prefix(size);
    } else if constexpr (IsVector<T>::value) {
      const uint64_t size = ReadSize();
      value.clear();
      for (uint64_t i = 0; i < size && ok_; ++i) Read(value.emplace_back());
    } else if constexpr (IsOptional<T>::value) {
      if (ReadWord() != 0) {
        Read(value.emplace());
      } else {
        value.reset();
      }
    } else if constexpr (IsPair<T>::value) {
      Read(value.first);
      Read(value.second);
    } else if constexpr (IsVariant<T>::value) {
      ReadVariant(value, std::make_index_sequence<std::variant_size_v<T>>());
    } else {
      boost::pfr::for_each_field(value, [this](auto& field) { this->Read(field); });
    }
  }

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  uint64_t ReadWord() {
    uint64_t word = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const uint8_t byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      word |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return word;
    }
    ok_ = false;
    return 0;
  }

  // Reads a length and checks that the rest can hold it. Every non-empty struct takes at least a
  // byte.
  uint64_t ReadSize() {
    const uint64_t size = ReadWord();
    if (size <= rest_.size()) return size;
    ok_ = false;
    return 0;
  }

  template <typename Variant, std::size_t... kIndex>
  void ReadVariant(Variant& value, std::index_sequence<kIndex...>) {
    const uint64_t index = ReadWord();
    if (index >= sizeof...(kIndex)) {
      ok_ = false;
      return;
    }
    (void)((kIndex == index && (Read(value.template emplace<kIndex>()), true)) || ...);
  }

  std::string_view rest_;
  bool ok_ = true;
};

// Returns nullopt if the bytes are not what a Writer wrote for a T.
template <typename T>
std::optional<T> Deserialize(std::string_view bytes) {
  Reader reader(bytes);
  T value{};
  reader.Read(value);
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return value;
}

}  // namespace lathe::engine
