#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns tinker://{run}/{kind}/{name} for a route whose first three parameters are these.
inline std::string CheckpointPath(const Request& request) {
  return absl::StrCat("tinker://", request.path_parameters[0], "/", request.path_parameters[1], "/",
                      request.path_parameters[2]);
}

}  // namespace lathe::gateway
