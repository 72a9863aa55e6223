#include "services/engine/rpc/find_rows.h"

#include <map>
#include <optional>
#include <string>
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

QueueStatus QueueOfBaseModel(Runtime& runtime, const std::string& name) {
  const std::map<std::string, QueueStatus> paused = runtime.hub().PausedGroups();
  QueueStatus first;
  for (const GroupRow& group : runtime.directory().Groups()) {
    if (group.base_model != name) continue;
    const auto found = paused.find(group.group);
    if (found == paused.end()) return {};
    if (!first.paused) first = found->second;
  }
  return first;
}

}  // namespace lathe::engine
