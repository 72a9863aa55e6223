#include "services/engine/one_task.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "services/engine/backup/backup.h"
#include "services/engine/settings.h"
#include "services/engine/store/describe_store.h"

namespace lathe::engine {
namespace {

constexpr int kExitDamaged = 1;

constexpr std::pair<std::string_view, OneTask::Kind> kTasks[] = {
    {"--check-store=quick", OneTask::Kind::kCheckStore},
    {"--check-store=deep", OneTask::Kind::kCheckStore},
    {"--backup=", OneTask::Kind::kBackup},
    {"--restore=", OneTask::Kind::kRestore},
};

int PrintError(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return kExitUnavailable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
      return kExitConfiguration;
    default:
      return kExitIo;
  }
}

int PrintStore(const Settings& settings, bool is_deep) {
  const absl::StatusOr<StoreDescription> store =
      DescribeStore(settings.store, settings.data_dir, is_deep);
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", std::string(store.status().message()).c_str());
    return IsUserError(store.status()) ? kExitConfiguration : kExitUnavailable;
  }
  std::printf("%s\n", store->text.c_str());
  for (const std::string& warning : store->warnings) std::printf("warning: %s\n", warning.c_str());
  return 0;
}

void PrintManifest(const char* what, const BackupManifest& manifest) {
  int64_t bytes = 0;
  for (const BackupFile& file : manifest.files) bytes += file.size_bytes;
  std::printf("%s %s: %s database of schema %d, %d files, %d MiB\n", what,
              manifest.created_at.c_str(), manifest.store.c_str(),
              static_cast<int>(manifest.schema_version), static_cast<int>(manifest.files.size()),
              static_cast<int>(bytes >> 20));
  for (const std::string& path : manifest.damaged) {
    std::fprintf(stderr, "%s is missing or damaged in the data directory\n", path.c_str());
  }
}

int Back(const Settings& settings, const std::string& dir) {
  if (settings.storage.has_objects()) {
    return PrintError(absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoints are in %s, which lathe backup does not read (docs/deploy/backup.md)",
        settings.storage.files)));
  }
  const absl::StatusOr<BackupManifest> manifest =
      MakeBackup({.store = settings.store, .data_dir = settings.data_dir, .dir = dir});
  if (!manifest.ok()) return PrintError(manifest.status());
  PrintManifest("backup as of", *manifest);
  return manifest->damaged.empty() ? 0 : kExitDamaged;
}

int Restore(const Settings& settings, const std::string& dir) {
  const absl::StatusOr<BackupManifest> manifest =
      RestoreBackup({.store = settings.store, .data_dir = settings.data_dir, .dir = dir});
  if (!manifest.ok()) return PrintError(manifest.status());
  PrintManifest("restored as of", *manifest);
  return 0;
}

}  // namespace

std::optional<OneTask> TakeTask(int& argc, char** argv) {
  char** const end = argv + argc;
  for (const auto& [prefix, kind] : kTasks) {
    char** const found = std::find_if(
        argv, end, [&](std::string_view argument) { return argument.starts_with(prefix); });
    if (found == end) continue;
    const std::string_view argument = *found;
    OneTask task{.kind = kind, .argument = std::string(argument.substr(argument.find('=') + 1))};
    std::rotate(found, found + 1, end);
    --argc;
    return task;
  }
  return std::nullopt;
}

int RunTask(const OneTask& task, const Settings& settings) try {
  switch (task.kind) {
    case OneTask::Kind::kCheckStore:
      return PrintStore(settings, task.argument == "deep");
    case OneTask::Kind::kBackup:
      return Back(settings, task.argument);
    case OneTask::Kind::kRestore:
      return Restore(settings, task.argument);
  }
  return kExitUsage;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return kExitIo;
}

}  // namespace lathe::engine
