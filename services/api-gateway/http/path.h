// Splits and decodes request targets exactly once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

struct Target {
  // Path without query, as sent.
  std::string path;
  // Decoded segments: "/a/b%20c" is {"a", "b c"}.
  std::vector<std::string> segments;
  std::vector<QueryParameter> query;
};

// Parses an absolute path of printable ASCII with an optional query. Returns InvalidArgument
// `bad_path` for any other target, and if a decoded segment is "." or "..", or contains '/', a
// control character or a non-ASCII character.
absl::StatusOr<Target> ParseTarget(std::string_view target);

}  // namespace lathe::gateway
