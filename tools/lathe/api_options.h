// Options of the verbs that use the HTTP API with a key, as any client may.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "libs/common/config/option_set.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/selftest/api_client.h"

namespace lathe::cli {

struct ApiOptions {
  DataDirOptions data;
  // Empty: TINKER_BASE_URL of the environment, else http://127.0.0.1:8080.
  std::string url;
  // Empty: TINKER_API_KEY of the environment. Without it, the admin key of the data directory,
  // which is sent to this machine only.
  std::string api_key;
  std::string ca;
};

// Adds --url, --api-key-file, --ca and the options of the data directory. `options` must outlive
// `set`.
void AddApiOptions(OptionSet& set, ApiOptions& options);

// Errors: usage for a wrong URL or no key, configuration for a bad file of `ca`.
absl::StatusOr<ApiClient> OpenApi(const ApiOptions& options);

// Error usage, naming `what`, unless `id` has only characters that ids of runs and names of
// projects may have. Then it can be a part of a path.
absl::Status CheckId(const std::string& what, const std::string& id);

}  // namespace lathe::cli
