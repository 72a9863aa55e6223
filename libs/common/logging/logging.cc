#include "libs/common/logging/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "libs/common/logging/log_line.h"

namespace lathe {
namespace {

struct Sink {
  std::string service;
  bool is_json = isatty(STDERR_FILENO) == 0;
  std::shared_ptr<spdlog::logger> logger =
      std::make_shared<spdlog::logger>("lathe", std::make_shared<spdlog::sinks::stderr_sink_mt>());

  Sink() {
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::trace);
  }
};

// The single sink of the process for stderr. Never destroyed, so that threads may log until the
// end.
Sink& TheSink() {
  static Sink& sink = *new Sink();
  return sink;
}

void Log(spdlog::level::level_enum level, std::string_view level_name, std::string_view message,
         std::initializer_list<LogField> fields) {
  Sink& sink = TheSink();
  if (!sink.logger->should_log(level)) return;
  const LogEvent event{absl::Now(), level_name, sink.service, message};
  sink.logger->log(level,
                   sink.is_json ? FormatJsonLine(event, fields) : FormatTextLine(event, fields));
}

}  // namespace

void InitLogging(std::string_view service, std::string_view level) {
  TheSink().service = service;
  SetLogLevel(level);
}

void SetLogLevel(std::string_view level) {
  TheSink().logger->set_level(level == "debug"   ? spdlog::level::debug
                              : level == "warn"  ? spdlog::level::warn
                              : level == "error" ? spdlog::level::err
                                                 : spdlog::level::info);
}

std::string_view LogLevel() {
  switch (TheSink().logger->level()) {
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::warn:
      return "warn";
    case spdlog::level::err:
      return "error";
    default:
      return "info";
  }
}

void LogDebug(std::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::debug, "debug", message, fields);
}
void LogInfo(std::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::info, "info", message, fields);
}
void LogWarn(std::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::warn, "warn", message, fields);
}
void LogError(std::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::err, "error", message, fields);
}

}  // namespace lathe
