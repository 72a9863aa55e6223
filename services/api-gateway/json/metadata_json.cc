#include "services/api-gateway/json/metadata_json.h"

#include "absl/time/time.h"

namespace lathe::gateway {

void ReadMetadata(FieldReader& in, const std::string& name, Metadata* metadata) {
  // nlohmann keeps members sorted by name.
  for (const auto& [key, value] : in.Object(name).items()) {
    v1::NamedString* entry = metadata->Add();
    entry->set_name(key);
    entry->set_value(value.is_string() ? value.get<std::string>() : JsonText(value));
  }
}

Json MetadataToJson(const Metadata& metadata) {
  if (metadata.empty()) return nullptr;
  Json object = Json::object();
  for (const v1::NamedString& entry : metadata) object[entry.name()] = entry.value();
  return object;
}

std::string TimestampText(const google::protobuf::Timestamp& time) {
  const absl::Time instant =
      absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E*SZ", instant, absl::UTCTimeZone());
}

}  // namespace lathe::gateway
