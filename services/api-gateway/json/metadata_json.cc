#include "services/api-gateway/json/metadata_json.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {

Metadata ReadMetadata(LargeObject& in, std::string_view name) {
  Metadata metadata;
  LargeObject object = in.Object(name);
  if (!object.members()) return metadata;
  for (const auto [key, value] : *object.members()) {
    v1::NamedString* entry = metadata.Add();
    entry->set_name(std::string(key));
    std::string_view text;
    const bool is_text = value.get(text) == simdjson::SUCCESS;
    entry->set_value(is_text ? std::string(text) : JsonText(Json::parse(simdjson::minify(value))));
  }
  std::sort(metadata.begin(), metadata.end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  return metadata;
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

absl::StatusOr<google::protobuf::Timestamp> TimestampFromText(std::string_view text,
                                                              const std::string& field) {
  constexpr size_t kMaxBytes = 64;
  absl::Time time;
  std::string error;
  const bool is_time = text.size() <= kMaxBytes &&
                       absl::ParseTime(absl::RFC3339_full, AbslView(text), &time, &error) &&
                       time >= absl::UnixEpoch() && time != absl::InfiniteFuture();
  if (!is_time) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "%s is '%s', expected RFC 3339 with a zone, like 2026-01-02T03:00:00Z",
                          field, absl::CHexEscape(AbslView(text.substr(0, kMaxBytes))))),
                      "invalid_field", field);
  }
  google::protobuf::Timestamp proto;
  proto.set_seconds(absl::ToUnixSeconds(time));
  proto.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(proto.seconds()))));
  return proto;
}

}  // namespace lathe::gateway
