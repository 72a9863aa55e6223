#include "services/engine/open_data.h"

#include <cstdlib>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/status_macros.h"
#include "services/engine/auth/admin_key.h"
#include "services/engine/dispatcher/worker_secret.h"
#include "services/engine/rpc/servers.h"

namespace lathe::engine {
namespace {

absl::Status MakeDirs(const Settings& settings, const std::filesystem::path& checkpoints_dir) {
  std::error_code error;
  for (const std::filesystem::path& dir :
       {std::filesystem::path(settings.run_dir), checkpoints_dir}) {
    std::filesystem::create_directories(dir, error);
    if (error) {
      return absl::InternalError(
          absl::StrCat("cannot make '", dir.string(), "': ", error.message()));
    }
  }
  return absl::OkStatus();
}

[[noreturn]] void EndRefused(const absl::Status& status) {
  LogError("the object store cannot be used", {{"error", status.message()}});
  std::_Exit(kExitConfiguration);
}

// Locks the data directory for SQLite, which keeps everything there. For a shared store, a lease
// guards the data, and the lock is on this engine's own run directory.
absl::StatusOr<DataDirLock> TakeLock(const Settings& settings) {
  // An engine that was killed holds its lock until the kernel has ended its writes.
  constexpr absl::Duration kPatience = absl::Seconds(5);
  return DataDirLock::Take(IsSharedStore(settings.store) ? settings.run_dir : settings.data_dir,
                           kPatience);
}

absl::StatusOr<std::string> WorkerSecret(const Settings& settings, Store& store) {
  if (!settings.worker_secret.empty()) {
    RETURN_IF_ERROR(WriteWorkerSecret(settings.run_dir, settings.worker_secret));
    return settings.worker_secret;
  }
  if (!IsSharedStore(settings.store)) {
    absl::StatusOr<std::string> secret = LoadSecret(settings.run_dir);
    if (!absl::IsNotFound(secret.status())) return secret;
  }
  ASSIGN_OR_RETURN(const std::string key, store.Secret("worker_secret"));
  return ShareSecret(settings.run_dir, key);
}

}  // namespace

int Fail(const absl::Status& status, int exit_code) {
  LogError("lathe-engine cannot run", {{"error", status.message()}});
  return exit_code;
}

std::optional<int> Open(Settings& settings, Opened& opened) {
  if (const absl::Status status = CheckSettings(settings); !status.ok()) {
    return Fail(status, kExitConfiguration);
  }
  settings.data_dir = std::filesystem::absolute(settings.data_dir).lexically_normal().string();
  if (settings.run_dir.empty()) settings.run_dir = settings.data_dir + "/run";
  settings.servers.run_dir = settings.run_dir;
  opened.checkpoints_dir = std::filesystem::path(settings.data_dir) / "checkpoints";

  if (const absl::Status status = CheckServerOptions(settings.servers); !status.ok()) {
    return Fail(status, kExitConfiguration);
  }
  if (!settings.admin_key_file.empty()) {
    const absl::Status status = CheckAdminKeyFile(settings.admin_key_file);
    if (!status.ok()) return Fail(status, kExitConfiguration);
  }
  absl::StatusOr<LoraDefaults> lora =
      MakeLoraDefaults(settings.lora_alpha, settings.lora_target_modules);
  if (!lora.ok()) return Fail(lora.status(), kExitConfiguration);
  opened.lora = *std::move(lora);
  absl::StatusOr<DataDirLock> lock = TakeLock(settings);
  if (!lock.ok()) return Fail(lock.status(), kExitCannotCreate);
  opened.lock.emplace(*std::move(lock));
  FailPoint("engine.start.locked");
  if (const absl::Status status = MakeDirs(settings, opened.checkpoints_dir); !status.ok()) {
    return Fail(status, kExitCannotCreate);
  }

  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(settings.store, settings.data_dir);
  if (absl::IsInvalidArgument(store.status()) || absl::IsFailedPrecondition(store.status())) {
    return Fail(store.status(), kExitConfiguration);
  }
  if (!store.ok()) return Fail(store.status(), kExitUnavailable);
  opened.store = *std::move(store);
  absl::StatusOr<std::string> worker_secret = WorkerSecret(settings, *opened.store);
  if (!worker_secret.ok()) return Fail(worker_secret.status(), kExitCannotCreate);
  opened.worker_secret = *std::move(worker_secret);
  opened.gateway_secret = settings.gateway_secret.empty() ? GatewaySecretOf(opened.worker_secret)
                                                          : settings.gateway_secret;
  if (const absl::Status status = WriteGatewaySecret(settings.run_dir, opened.gateway_secret);
      !status.ok()) {
    return Fail(status, kExitCannotCreate);
  }
  absl::StatusOr<std::string> archive_key = opened.store->Secret("archive_signing_key");
  if (!archive_key.ok()) return Fail(archive_key.status(), kExitUnavailable);
  opened.archive_key = *std::move(archive_key);
  absl::StatusOr<StoredCheckpoints> stored =
      OpenStoredCheckpoints(settings.storage, opened.checkpoints_dir, *opened.store);
  if (absl::IsUnavailable(stored.status())) return Fail(stored.status(), kExitUnavailable);
  if (!stored.ok()) return Fail(stored.status(), kExitConfiguration);
  opened.stored_checkpoints = *std::move(stored);
  opened.stored_checkpoints.on_refused = EndRefused;
  return std::nullopt;
}

}  // namespace lathe::engine
