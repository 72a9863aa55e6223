#include "services/engine/rpc/find_checkpoint.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validate_names.h"

namespace lathe::engine {

absl::StatusOr<CheckpointRow> FindCheckpoint(Runtime& runtime, const std::string& tenant_id,
                                             const std::string& path, const std::string& field) {
  RETURN_IF_ERROR(ValidateTinkerPath(path, field));
  ASSIGN_OR_RETURN(std::optional<CheckpointRow> row,
                   runtime.store().FindCheckpoint(tenant_id, path, runtime.NowNanos()));
  if (row) return *std::move(row);
  return WithDetail(absl::NotFoundError(absl::StrFormat("checkpoint '%s' does not exist", path)),
                    "not_found", field);
}

absl::StatusOr<std::string> ReaderOf(const KeyRing& keys, const std::string& weights_access_token) {
  if (weights_access_token.empty()) return std::string();
  const absl::StatusOr<Caller> reader = keys.Authenticate(weights_access_token);
  if (reader.ok()) return reader->tenant_id;
  // PermissionDenied and not Unauthenticated, because the caller's own key is valid.
  return WithDetail(absl::PermissionDeniedError("weights_access_token is not a valid credential"),
                    "bad_weights_access_token", "weights_access_token");
}

}  // namespace lathe::engine
