// Checks of the object store.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/doctor/check.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr char kFolder[] = "doctor/";
constexpr char kText[] = "lathe doctor";

absl::Status ReadBack(ObjectStore& store, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, store.GetText(name, sizeof(kText)));
  if (text != kText) {
    return absl::DataLossError(absl::StrCat(store.AddressOf(name), " came back with other bytes"));
  }
  RETURN_IF_ERROR(store.List(kFolder).status());
  // No upload began before this time, so none is removed.
  return store.AbortUploads(kFolder, absl::UnixEpoch()).status();
}

// Uses each right that an engine or a worker needs.
absl::Status UseObjects(ObjectStore& store) {
  const std::string name = absl::StrCat(kFolder, RandomId(8));
  RETURN_IF_ERROR(store.PutText(name, kText));
  const absl::Status read = ReadBack(store, name);
  const absl::Status removed = store.Delete(name);
  return read.ok() ? removed : read;
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
  const absl::Status status = store.ok() ? UseObjects(**store) : store.status();
  if (status.ok()) {
    return {{.found = absl::StrCat(options.files, " writes, reads, lists and deletes objects")}};
  }
  // Lathe serves on while an object store is away.
  return {{.state = absl::IsUnavailable(status) ? CheckState::kWarning : CheckState::kError,
           .found = std::string(status.message()),
           .expected = "a bucket in which objects can be written, read, listed and deleted",
           .remedy = "docs/deploy/object_storage.md lists the options, keys and rights"}};
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
