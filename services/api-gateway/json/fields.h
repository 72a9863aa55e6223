// Members of JSON bodies, declared once: reading and the OpenAPI document both follow the tables.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

struct ObjectFields;

// A member of a JSON object, which becomes a field of a message. The field's type decides what the
// member must be. A string map becomes NamedStrings, RFC 3339 becomes a Timestamp.
struct Field {
  std::string_view name;
  // Field of the message, if it has another name. kSame: the members of this object are fields of
  // the message that has the object. If the object is absent, its members' fallbacks still apply.
  // If an absent object is required, it is read as an empty object, so that the error names the
  // members that are missing in it.
  std::string_view to = "";
  bool is_required = false;
  // Null counts as absent for all types but numbers, because clients write NaN as null. If true,
  // null counts as absent for numbers too, and a required member may be null.
  bool is_nullable = false;
  // Value of an absent member.
  std::variant<std::monostate, bool, int64_t, double, std::string_view> fallback = {};
  // Bounds of a list, checked before its elements are read.
  size_t min_count = 0;
  size_t max_count = SIZE_MAX;
  // Members of an object, or of each object of a list.
  const ObjectFields* object = nullptr;
  // Name of another member. If it is present, this member is not read.
  std::string_view unless = "";
  // Replaces the generic reading of a member that is present or required.
  void (*read)(LargeObject& in, std::string_view name,
               google::protobuf::Message& message) = nullptr;

  // The members below are for the OpenAPI document. `schema` and `items` repeat the engine's
  // bounds; the gateway does not check them. A member with `read` needs `schema` or `ref` to be in
  // the document.
  std::string_view about = "";
  // More members of the schema, as in `"minimum": 1`; `items`: of the schema of a list's elements.
  std::string_view schema = "";
  std::string_view items = "";
  // Name of the whole schema in the components; of a list: of its elements' schema.
  std::string_view ref = "";
};

inline constexpr std::string_view kSame = ".";

// Members of several bodies.
inline constexpr Field kModelId = {.name = "model_id", .is_required = true};
inline constexpr Field kSeqId = {.name = "seq_id", .ref = "SeqId"};
inline constexpr Field kMetadata = {.name = "user_metadata", .ref = "Metadata"};

struct ObjectFields {
  // Name of the schema in the components. Empty: it stands where it is used.
  std::string_view name;
  std::span<const Field> fields;
};

// Object of bodies whose message has an optimizer_type.
inline constexpr Field kOptimizerConfigFields[] = {
    {.name = "type", .to = "optimizer_type", .schema = R"("const": "adamw")"}};
inline constexpr ObjectFields kOptimizerConfig = {"OptimizerConfig", kOptimizerConfigFields};

// Members of a body that becomes a T.
template <typename T>
struct BodyFields : ObjectFields {};

// Reads members into the fields of `message`. Errors are InvalidArgument `invalid_field` with the
// JSON pointer, in `in.errors()`.
void ReadFields(LargeObject& in, const ObjectFields& object, google::protobuf::Message& message);

// Reads a small body. Errors are those of CheckJson and of ReadFields.
absl::Status ReadMessage(const std::string& text, const ObjectFields& object,
                         google::protobuf::Message& message);
template <typename T>
absl::StatusOr<T> ReadBody(const std::string& text, const BodyFields<T>& body) {
  T message;
  if (absl::Status status = ReadMessage(text, body, message); !status.ok()) return status;
  return message;
}

// Adds the schema of `object`, and of all objects in it that have names, to `schemas`.
void AddSchema(const ObjectFields& object, const google::protobuf::Descriptor& type,
               OrderedJson* schemas);

}  // namespace lathe::gateway
