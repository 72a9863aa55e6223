// Checks of the object store.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/doctor/check.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr char kFolder[] = "doctor/";
constexpr char kText[] = "lathe doctor";
constexpr int kTries = 3;

absl::Status ReadBack(ObjectStore& store, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, store.GetText(name, sizeof(kText)));
  if (text != kText) {
    return absl::DataLossError(absl::StrCat(store.AddressOf(name), " came back with other bytes"));
  }
  return store.List(kFolder).status();
}

absl::Status UseObject(ObjectStore& store, const std::string& name) {
  RETURN_IF_ERROR(store.PutText(name, kText));
  const absl::Status read = ReadBack(store, name);
  const absl::Status removed = store.Delete(name);
  return read.ok() ? removed : read;
}

// Uses each right without which an engine or a worker does not start.
absl::Status UseObjects(ObjectStore& store, const std::string& name) {
  absl::Status status = UseObject(store, name);
  // Another doctor of this role may have removed the object.
  for (int i = 1; i < kTries && absl::IsNotFound(status); ++i) status = UseObject(store, name);
  return status;
}

// Returns what Lathe does without the object store; empty: it does not start.
std::string WhatStillWorks(const absl::Status& status) {
  if (ErrorCode(status) == kNotValidNow) {
    return "Lathe serves on, and an engine that starts tries again, until the keys are renewed or "
           "the clock is set";
  }
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return "";
    case absl::StatusCode::kResourceExhausted:
      return "Lathe serves on, and checkpoints can be read; none can be saved until there is room";
    default:
      return "Lathe serves on; checkpoints cannot be saved or read meanwhile";
  }
}

std::vector<Finding> CheckObjects(const CheckInput& input) {
  const StorageOptions options = {
      .files = input.Option("storage.files"),
      .endpoint = input.Option("storage.endpoint"),
      .region = input.Option("storage.region"),
      .insecure_i_know = input.Option("storage.insecure_i_know") == "true"};
  if (!options.has_objects()) {
    return {{.state = CheckState::kSkipped, .found = "checkpoints are in the data directory"}};
  }
  const auto store = OpenObjectStore(options, kPatience);
  if (!store.ok()) {
    return {{.state = CheckState::kError,
             .found = std::string(store.status().message()),
             .remedy = "correct the options storage.*"}};
  }
  // One name for each role, so that doctors that are killed leave one object.
  const std::string name = absl::StrCat(kFolder, input.Section());
  if (const absl::Status status = UseObjects(**store, name); !status.ok()) {
    const std::string works = WhatStillWorks(status);
    return {{.state = works.empty() ? CheckState::kError : CheckState::kWarning,
             .found = absl::StrCat(std::string(status.message()), works.empty() ? "" : ". ", works),
             .expected = "a bucket in which objects can be written, read, listed and deleted",
             .remedy = "docs/deploy/object_storage.md lists the options, keys and rights"}};
  }
  // No upload began before this time, so none is removed.
  const absl::Status uploads = (*store)->AbortUploads(kFolder, absl::UnixEpoch()).status();
  if (!uploads.ok()) {
    return {
        {.state = CheckState::kWarning,
         .found = absl::StrCat(std::string(uploads.message()),
                               ". All else works; what uploads that never ended have left stays"),
         .expected = "a store that lists uploads in parts, and keys that may do so",
         .remedy = "give the keys s3:ListBucketMultipartUploads, or have the bucket end old "
                   "uploads by itself"}};
  }
  return {{.found = absl::StrCat(options.files, " writes, reads, lists and deletes objects")}};
}

}  // namespace

const std::vector<DoctorCheck>& StorageChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "storage",
       .why = "checkpoints and snapshots are there",
       .roles = {Role::kUp, Role::kEngine, Role::kWorker, Role::kRanks},
       .asks_other_machines = true,
       .run = CheckObjects},
  };
  return checks;
}

}  // namespace lathe::cli
