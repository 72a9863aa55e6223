// What the executor's thread is woken by.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "services/worker/executor/recovery_files.h"
#include "services/worker/executor/version_files.h"
#include "services/worker/ops.h"

namespace lathe::worker {

struct SubmittedCommand {
  Command command;
  std::string encoded;  // as the other ranks get it
};

struct ResetItem {
  int64_t generation = 0;
};

using ExecutorItem = std::variant<SubmittedCommand, ResetItem, VersionJobDone, RecoveryJobDone>;

}  // namespace lathe::worker
