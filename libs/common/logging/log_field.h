// A key and a value in a log line.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace lathe {

// A view of a value. It must not outlive the text it was made from.
class LogValue {
 public:
  using Variant = std::variant<bool, int64_t, uint64_t, double, std::string_view>;

  LogValue(bool value) : value_(value) {}  // NOLINT
  template <std::signed_integral T>
  LogValue(T value) : value_(static_cast<int64_t>(value)) {}  // NOLINT
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) LogValue(T value)
      : value_(static_cast<uint64_t>(value)) {}  // NOLINT
  template <std::floating_point T>
  LogValue(T value) : value_(static_cast<double>(value)) {}  // NOLINT
  // Accepts std::string, const char*, std::string_view, and absl::string_view by data() and size().
  template <typename T>
  requires std::convertible_to<const T&, std::string_view> LogValue(const T& value)
      : value_(static_cast<std::string_view>(value)) {}  // NOLINT
  template <typename T>
  requires(!std::convertible_to<const T&, std::string_view> &&
           requires(const T& text) {
             { text.data() } -> std::convertible_to<const char*>;
             { text.size() } -> std::convertible_to<std::size_t>;
           }) LogValue(const T& value)
      : value_(std::string_view(value.data(), value.size())) {}  // NOLINT

  const Variant& variant() const { return value_; }

 private:
  Variant value_;
};

struct LogField {
  std::string_view key;
  LogValue value;
};

}  // namespace lathe
