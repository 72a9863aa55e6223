#include "libs/common/object_store/storage_options.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/object_store/directory_store.h"
#include "libs/common/object_store/s3_options.h"
#include "libs/common/object_store/s3_store.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr char kFileScheme[] = "file:/";
constexpr int64_t kDefaultCacheMib = 32 << 10;

std::string RegionOf(const StorageOptions& options) {
  if (!options.region.empty()) return options.region;
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "us-east-1";
}

absl::StatusOr<S3Options> ToS3(const StorageOptions& options, absl::Duration patience) {
  S3Options s3;
  RETURN_IF_ERROR(ReadS3Url(options.files, s3));
  s3.endpoint = options.endpoint;
  s3.region = RegionOf(options);
  s3.insecure_i_know = options.insecure_i_know;
  s3.patience = patience;
  s3.stall = std::min(s3.stall, patience);
  RETURN_IF_ERROR(CheckS3Options(s3));
  return s3;
}

}  // namespace

void AddStorageOptions(OptionSet& set, StorageOptions& options, bool has_cache) {
  set.Add(&options.files, "storage.files", "",
          "s3://BUCKET[/PREFIX] for checkpoints, snapshots and sampler versions; the same for all "
          "processes; empty: DATA_DIR/checkpoints",
          {.flag = "storage-files"});
  set.Add(&options.endpoint, "storage.endpoint", "",
          "URL of an object store other than AWS, https://HOST[:PORT]; empty: AWS",
          {.flag = "storage-endpoint"});
  set.Add(&options.region, "storage.region", "",
          "region of the bucket; empty: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1",
          {.flag = "storage-region"});
  set.Add(&options.insecure_i_know, "storage.insecure_i_know", false,
          "allows an endpoint with http on another machine", {.flag = "storage-insecure-i-know"});
  if (!has_cache) return;
  set.Add(&options.cache_dir, "storage.cache_dir", "",
          "folder of this machine's copies of objects; empty: DATA_DIR/cache",
          {.flag = "storage-cache-dir"});
  set.Add(&options.cache_mib, "storage.cache_mib", kDefaultCacheMib,
          "MiB of these copies; above it those used least recently are removed",
          {.flag = "storage-cache-mib"});
}

absl::Status CheckStorageOptions(const StorageOptions& options) {
  if (options.cache_mib < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("storage.cache_mib is %d, minimum is 0", options.cache_mib));
  }
  if (!options.has_objects() || absl::StartsWith(options.files, kFileScheme)) {
    return absl::OkStatus();
  }
  const absl::Status status = ToS3(options, absl::Seconds(1)).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError("storage." + std::string(status.message()));
}

absl::StatusOr<std::shared_ptr<ObjectStore>> OpenObjectStore(const StorageOptions& options,
                                                             absl::Duration patience,
                                                             std::function<void()> on_fetched) {
  RETURN_IF_ERROR(CheckStorageOptions(options));
  if (!options.has_objects()) return nullptr;
  if (absl::StartsWith(options.files, kFileScheme)) {
    return std::make_shared<DirectoryStore>(options.files.substr(sizeof(kFileScheme) - 2));
  }
  ASSIGN_OR_RETURN(S3Options s3, ToS3(options, patience));
  s3.on_fetched = std::move(on_fetched);
  return std::make_shared<S3Store>(std::move(s3),
                                   [](const char* name) { return std::getenv(name); });
}

}  // namespace lathe
