// The option log.level, which every process has, and its change while the process runs.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "libs/common/concurrency/named_thread.h"
#include "libs/common/config/option_set.h"

namespace lathe {

// Adds log.level with the flag --log-level: debug, info, warn or error.
void AddLogLevel(OptionSet& options, std::string* level);

// On SIGHUP, reads log.level again from the file of --config and applies it. The environment wins
// over the file, as at the start.
class LogLevelReload {
 public:
  // Construct before any thread starts, because every thread must block SIGHUP. `config_path` may
  // be empty; SIGHUP then only logs that there is no file.
  explicit LogLevelReload(std::string config_path);
  ~LogLevelReload();

 private:
  void Listen();

  const std::string config_path_;
  std::atomic<bool> is_ending_ = false;
  std::optional<NamedThread> thread_;
};

}  // namespace lathe
