// Looks at a database without changing it, for people.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::engine {

// Describes the database of `setting` (see OpenStore) in a line: its version, schema and use.
// `is_deep`: reads all of a SQLite database, which takes a minute for some gigabytes. Returns
// FailedPrecondition if this engine cannot use the database, DataLoss if it is damaged, and
// Unavailable if it cannot be reached.
absl::StatusOr<std::string> DescribeStore(const std::string& setting,
                                          const std::filesystem::path& data_dir, bool is_deep);

// These describe one kind of database.
absl::StatusOr<std::string> DescribeSqlite(const std::filesystem::path& database, bool is_deep);
absl::StatusOr<std::string> DescribePostgres(const std::string& url);

}  // namespace lathe::engine
