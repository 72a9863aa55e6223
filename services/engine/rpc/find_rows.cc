#include "services/engine/rpc/find_rows.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {

absl::Status NoSuch(const char* what, const std::string& id, const char* field) {
  return WithDetail(absl::NotFoundError(absl::StrFormat("%s '%s' does not exist", what, id)),
                    "not_found", field);
}

absl::StatusOr<ModelRow> FindModel(Runtime& runtime, const std::string& tenant_id,
                                   const std::string& model_id) {
  std::optional<ModelRow> row = runtime.directory().FindModel(tenant_id, model_id);
  if (!row) {
    ASSIGN_OR_RETURN(row, runtime.store().FindModel(tenant_id, model_id));
  }
  if (!row) return NoSuch("model", model_id, "model_id");
  return *std::move(row);
}

absl::StatusOr<SamplerRow> FindSampler(Runtime& runtime, const std::string& tenant_id,
                                       const std::string& sampling_session_id) {
  std::optional<SamplerRow> row = runtime.directory().FindSampler(tenant_id, sampling_session_id);
  if (!row) {
    ASSIGN_OR_RETURN(row, runtime.store().FindSampler(tenant_id, sampling_session_id));
  }
  if (!row) return NoSuch("sampling session", sampling_session_id, "sampling_session_id");
  return *std::move(row);
}

}  // namespace lathe::engine
