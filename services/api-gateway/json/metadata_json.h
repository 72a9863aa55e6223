// Converts user metadata between a JSON object and strings sorted by name.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

using Metadata = google::protobuf::RepeatedPtrField<v1::NamedString>;

// Reads member `name`. Values other than strings become their JSON text, because SDKs that read
// them back accept only strings.
Metadata ReadMetadata(LargeObject& in, std::string_view name);

// Returns null if `metadata` is empty.
Json MetadataToJson(const Metadata& metadata);

// Formats `time` as RFC 3339 in UTC, e.g. "2026-01-02T03:04:05.25Z".
std::string TimestampText(const google::protobuf::Timestamp& time);
// Parses RFC 3339 with any zone. InvalidArgument `invalid_field` with `field` for other text and
// for times before 1970.
absl::StatusOr<google::protobuf::Timestamp> TimestampFromText(std::string_view text,
                                                              const std::string& field);

}  // namespace lathe::gateway
