// Reads runs over the HTTP API, with a bound on the calls.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/json/json.h"
#include "tools/lathe/runs/run_list.h"
#include "tools/lathe/selftest/api_client.h"

namespace lathe::cli {

// Runs of a listing that are looked at, at most.
inline constexpr int kMaxRunsRead = 1000;
// Maximum time of one call.
inline constexpr absl::Duration kApiCallTimeout = absl::Seconds(5);

struct RunPage {
  // Newest first.
  std::vector<ListedRun> runs;
  // Runs of the tenant or the project. Counts at most 10,000 behind those that were read.
  int64_t total_count = 0;
};

// Reads the newest `limit` runs, up to kMaxRunsRead, of a project (empty: of all), with their
// sessions.
absl::StatusOr<RunPage> ReadRuns(ApiClient& api, const std::string& project, int limit);

// Reads one run and its session. `id` must have passed CheckId.
absl::StatusOr<ListedRun> ReadRun(ApiClient& api, const std::string& id);

// Returns the answer of ListRunRequests.
absl::StatusOr<Json> ReadRequests(ApiClient& api, const std::string& run_id, int limit);

// Fills in last_step of the first runs, at most 50 of them, until a call fails. A run that does not
// exist any more has none.
absl::Status ReadLastSteps(ApiClient& api, std::vector<ListedRun>& runs);

}  // namespace lathe::cli
