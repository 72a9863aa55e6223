// The options storage.*, which say where the files of checkpoints are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/object_store/object_store.h"

namespace lathe {

struct StorageOptions {
  std::string files;     // s3://BUCKET[/PREFIX] or file:/DIRECTORY; empty: the data directory
  std::string endpoint;  // empty: AWS
  std::string region;    // empty: AWS_REGION, AWS_DEFAULT_REGION, us-east-1
  bool insecure_i_know = false;
  std::string cache_dir;  // empty: DATA_DIR/cache
  int64_t cache_mib = 0;

  bool has_objects() const { return !files.empty(); }
};

// `options` must outlive `set`. The options of the cache are for processes that have one.
void AddStorageOptions(OptionSet& set, StorageOptions& options, bool has_cache);

// InvalidArgument naming option and value.
absl::Status CheckStorageOptions(const StorageOptions& options);

// Returns null if the files are in the data directory. `patience`: time for one request with its
// repetitions. `on_fetched` is called for each piece of a file that a bucket sends. Errors as
// CheckStorageOptions.
absl::StatusOr<std::shared_ptr<ObjectStore>> OpenObjectStore(const StorageOptions& options,
                                                             absl::Duration patience,
                                                             std::function<void()> on_fetched = {});

}  // namespace lathe
