// Logs one line per event on stderr: text on a terminal, JSON otherwise.
//
//   LogInfo("worker attached", {{"group", group}, {"epoch", 3}});
//
// Messages are constants in lower case; variable data goes into fields. Keys are the same
// everywhere: request_id, model_id, seq_id, rank, epoch, error. Never log prompts, tokens, weights
// or keys.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
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

// A key and a value in a log line.
struct LogField {
  std::string_view key;
  LogValue value;
};

// Call once, first in main. `service` is in every line. `level` is debug, info, warn or error;
// another word counts as info. Without this call, lines have no service and debug is off.
void InitLogging(std::string_view service, std::string_view level = "info");

// Change and return the minimum level. Any thread.
void SetLogLevel(std::string_view level);
std::string_view LogLevel();

// Log one line. Any thread.
void LogDebug(std::string_view message, std::initializer_list<LogField> fields = {});
void LogInfo(std::string_view message, std::initializer_list<LogField> fields = {});
void LogWarn(std::string_view message, std::initializer_list<LogField> fields = {});
void LogError(std::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace lathe
