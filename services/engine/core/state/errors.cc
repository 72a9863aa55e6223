#include "services/engine/core/state/errors.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace lathe::engine {

ErrorInfo InvalidArgument(std::string code, std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, std::move(code), std::move(field),
          std::move(message)};
}

ErrorInfo FailedPrecondition(std::string code, std::string message) {
  return {absl::StatusCode::kFailedPrecondition, std::move(code), "", std::move(message)};
}

ErrorInfo ResourceExhausted(std::string code, std::string message) {
  return {absl::StatusCode::kResourceExhausted, std::move(code), "", std::move(message)};
}

ErrorInfo DataLoss(std::string code, std::string message) {
  return {absl::StatusCode::kDataLoss, std::move(code), "", std::move(message)};
}

ErrorInfo Cancelled(std::string message) {
  return {absl::StatusCode::kCancelled, "cancelled", "", std::move(message)};
}

ErrorInfo Internal(std::string message) {
  return {absl::StatusCode::kInternal, "internal", "", std::move(message)};
}

ErrorInfo Draining() {
  return {absl::StatusCode::kUnavailable, "draining", "",
          "draining: the engine finishes accepted work and accepts no new work"};
}

ErrorInfo NotFound(const std::string& what, const std::string& id) {
  return {absl::StatusCode::kNotFound, "not_found", "",
          absl::StrFormat("%s %s not found", what, id)};
}

}  // namespace lathe::engine
