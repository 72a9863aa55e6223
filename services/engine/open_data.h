// Opens what an engine has before it leads: its directories, their lock, the store and secrets.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/engine/open_stored_checkpoints.h"
#include "services/engine/rpc/validate_lora.h"
#include "services/engine/settings.h"
#include "services/engine/store/data_dir_lock.h"
#include "services/engine/store/open_store.h"

namespace lathe::engine {

// Logs why the engine cannot run and returns `exit_code`.
int Fail(const absl::Status& status, int exit_code);

// Resources of an engine before it leads.
struct Opened {
  std::filesystem::path checkpoints_dir;
  LoraDefaults lora;
  std::optional<DataDirLock> lock;
  std::unique_ptr<Store> store;
  std::string worker_secret;
  std::string gateway_secret;
  std::string archive_key;
  StoredCheckpoints stored_checkpoints;
};

// Completes and checks `settings`, then opens the store. Returns the exit code of a failure.
std::optional<int> Open(Settings& settings, Opened& opened);

}  // namespace lathe::engine
