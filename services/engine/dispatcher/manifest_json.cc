#include "services/engine/dispatcher/manifest_json.h"

#include "libs/common/json/json.h"

namespace lathe::engine {

std::string ManifestJson(const CheckpointRow& row, int64_t term) {
  Json metadata = Json::object();
  for (const auto& [name, value] : row.user_metadata) metadata[name] = value;
  return ToJsonText({{"tinker_path", row.tinker_path},
                     {"name", row.name},
                     {"tenant_id", row.tenant_id},
                     {"engine_term", term},
                     {"created_at_ns", row.created_at},
                     {"user_metadata", metadata}});
}

std::string ManifestJson(const std::string& tenant_id, int64_t term) {
  return ToJsonText({{"tenant_id", tenant_id}, {"engine_term", term}});
}

}  // namespace lathe::engine
