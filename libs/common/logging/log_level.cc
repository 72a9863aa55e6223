#include "libs/common/logging/log_level.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "libs/common/logging/logging.h"

namespace lathe {
namespace {

sigset_t Hangup() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  return signals;
}

void BlockHangup() {
  const sigset_t signals = Hangup();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void Reload(const std::string& config_path) {
  if (config_path.empty()) {
    LogWarn("log level stays", {{"error", "there is no --config file to read"}});
    return;
  }
  std::string level;
  OptionSet options("lathe", "");
  AddLogLevel(options, &level);
  const char* const arguments[] = {"lathe", "--config", config_path.c_str()};
  if (const absl::Status status = options.Parse(3, arguments); !status.ok()) {
    LogWarn("log level stays", {{"error", status.message()}});
    return;
  }
  SetLogLevel(level);
  LogWarn("log level", {{"level", level}});
}

}  // namespace

void AddLogLevel(OptionSet& options, std::string* level) {
  options.Add(level, "log.level", "info", "minimum level of log lines; SIGHUP reads it again",
              {.flag = "log-level", .choices = {"debug", "info", "warn", "error"}});
}

LogLevelReload::LogLevelReload(std::string config_path) : config_path_(std::move(config_path)) {
  BlockHangup();
  thread_.emplace("log-level", [this] { Listen(); });
}

// Sends SIGHUP to end the thread, which waits for nothing but a signal.
LogLevelReload::~LogLevelReload() {
  is_ending_ = true;
  kill(getpid(), SIGHUP);
}

void LogLevelReload::Listen() {
  const sigset_t signals = Hangup();
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && !is_ending_) Reload(config_path_);
}

}  // namespace lathe
