// Formats a log event as text. Private to logging.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "libs/common/logging/logging.h"

namespace lathe {

struct LogEvent {
  absl::Time time;
  std::string_view level;
  std::string_view service;
  std::string_view message;
};

// Returns {"ts":"…","level":"info","service":"engine","msg":"…","group":"default"}, with the fields
// in their order.
std::string FormatJsonLine(const LogEvent& event, std::initializer_list<LogField> fields);

// Returns "12:00:01.250 info  worker attached group=default"; values with spaces are quoted.
std::string FormatTextLine(const LogEvent& event, std::initializer_list<LogField> fields);

}  // namespace lathe
