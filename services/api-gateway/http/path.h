// Request targets: split and decoded exactly once.
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

// InvalidArgument `bad_path` for anything but an absolute path of printable ASCII whose decoded
// segments contain no '/', no control character and are neither "." nor "..".
absl::StatusOr<Target> ParseTarget(std::string_view target);

}  // namespace lathe::gateway
