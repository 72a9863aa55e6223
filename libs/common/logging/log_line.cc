#include "libs/common/logging/log_line.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/json/json.h"

namespace lathe {
namespace {

std::string JsonText(std::string_view text) { return ToJsonText(Json(std::string(text))); }

std::string JsonValue(const LogValue& value) {
  return std::visit([](const auto& held) { return ToJsonText(Json(held)); }, value.variant());
}

std::string TextValue(const LogValue& value) {
  const auto* text = std::get_if<std::string_view>(&value.variant());
  if (text == nullptr) return JsonValue(value);
  const bool is_plain = !text->empty() && text->find_first_of(" =\"\\\n\r\t") == std::string::npos;
  return is_plain ? std::string(*text) : JsonText(*text);
}

}  // namespace

std::string FormatJsonLine(const LogEvent& event, std::initializer_list<LogField> fields) {
  const std::string time =
      absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", event.time, absl::UTCTimeZone());
  std::string line = absl::StrFormat(R"({"ts":"%s","level":"%s")", time, event.level);
  if (!event.service.empty()) absl::StrAppend(&line, ",\"service\":", JsonText(event.service));
  absl::StrAppend(&line, ",\"msg\":", JsonText(event.message));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, ",", JsonText(field.key), ":", JsonValue(field.value));
  }
  return line + "}";
}

std::string FormatTextLine(const LogEvent& event, std::initializer_list<LogField> fields) {
  const std::string time = absl::FormatTime("%H:%M:%E3S", event.time, absl::LocalTimeZone());
  std::string line = absl::StrFormat("%s %-5s %s", time, event.level, event.message);
  for (const LogField& field : fields) {
    absl::StrAppendFormat(&line, " %s=%s", field.key, TextValue(field.value));
  }
  return line;
}

}  // namespace lathe
