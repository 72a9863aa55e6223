// Items in the queue of the executor's thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "services/worker/executor/versions/recovery_files.h"
#include "services/worker/executor/versions/version_files.h"
#include "services/worker/ops/commands.h"

namespace lathe::worker {

struct SubmittedCommand {
  Command command;
  std::string encoded;  // for the other ranks
};

struct ResetItem {
  int64_t generation = 0;
};

using ExecutorItem = std::variant<SubmittedCommand, ResetItem, VersionJobDone, RecoveryJobDone>;

}  // namespace lathe::worker
