// Looks at a database without changing it, for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::engine {

struct StoreDescription {
  std::string text;  // a line: version, schema and use
  // Each names what an operator has to mend. An engine starts all the same.
  std::vector<std::string> warnings = {};
};

// Describes the database of `setting` (see OpenStore). `is_deep`: reads all of a SQLite database,
// which takes a minute for some gigabytes. Returns FailedPrecondition if this engine cannot use the
// database, DataLoss if it is damaged, and Unavailable if it cannot be reached.
absl::StatusOr<StoreDescription> DescribeStore(const std::string& setting,
                                               const std::filesystem::path& data_dir, bool is_deep);

// These describe one kind of database.
absl::StatusOr<StoreDescription> DescribeSqlite(const std::filesystem::path& database,
                                                bool is_deep);
absl::StatusOr<StoreDescription> DescribePostgres(const std::string& url);

}  // namespace lathe::engine
