#include "services/api-gateway/json/fields.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using simdjson::dom::element;

// Keeps what it has found, because a search by name costs more than reading a small member.
const FieldDescriptor& FieldOf(const Descriptor& type, const Field& field) {
  thread_local absl::flat_hash_map<std::pair<const Descriptor*, const Field*>,
                                   const FieldDescriptor*>
      found;
  const FieldDescriptor*& to = found[{&type, &field}];
  if (to == nullptr) {
    to = type.FindFieldByName(std::string(field.to.empty() ? field.name : field.to));
  }
  return *to;
}

bool IsA(const FieldDescriptor& to, const Descriptor& type) {
  return to.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && to.message_type() == &type;
}

bool IsMetadata(const FieldDescriptor& to) {
  return to.is_repeated() && IsA(to, *v1::NamedString::descriptor());
}

bool IsList(const FieldDescriptor& to) { return to.is_repeated() && !IsMetadata(to); }

bool IsTime(const FieldDescriptor& to) {
  return IsA(to, *google::protobuf::Timestamp::descriptor());
}

// Returns JSON Schema's name of the type.
std::string_view SchemaType(const FieldDescriptor& to) {
  switch (to.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "integer";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "boolean";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return IsTime(to) ? "string" : "object";
    default:
      return "string";
  }
}

// Returns the type as error messages name it, as in "an integer".
std::string KindOf(const FieldDescriptor& to) {
  const std::string_view type = SchemaType(to);
  return absl::StrCat(type == "integer" || type == "object" ? "an " : "a ", AbslView(type));
}

void SetFallback(const Field& field, const FieldDescriptor& to, Message& message) {
  const google::protobuf::Reflection& set = *message.GetReflection();
  if (const auto* flag = std::get_if<bool>(&field.fallback)) set.SetBool(&message, &to, *flag);
  if (const auto* number = std::get_if<int64_t>(&field.fallback)) {
    set.SetInt64(&message, &to, *number);
  }
  if (const auto* number = std::get_if<double>(&field.fallback)) {
    set.SetDouble(&message, &to, *number);
  }
  if (const auto* text = std::get_if<std::string_view>(&field.fallback)) {
    set.SetString(&message, &to, std::string(*text));
  }
}

bool HasFallback(const Field& field) {
  return !std::holds_alternative<std::monostate>(field.fallback);
}

void SetFallbacks(const ObjectFields& object, Message& message) {
  for (const Field& field : object.fields) {
    if (HasFallback(field)) {
      SetFallback(field, FieldOf(*message.GetDescriptor(), field), message);
    }
  }
}

void ReadList(LargeObject& in, const Field& field, const FieldDescriptor& to, element value,
              Message& message) {
  const bool has_objects = field.object != nullptr;
  const std::string expected =
      absl::StrCat("a list of ", field.min_count > 0 ? "at least one " : "",
                   has_objects ? "object" : "string", field.min_count > 0 ? "" : "s");
  const std::string pointer = in.PointerTo(field.name);
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS || list.size() < field.min_count) {
    return in.errors().Fail(pointer, expected);
  }
  if (list.size() > field.max_count) {
    return in.errors().Set(WithDetail(
        absl::InvalidArgumentError(absl::StrFormat("field %s has %d entries, limit is %d", pointer,
                                                   list.size(), field.max_count)),
        "invalid_field", pointer));
  }
  const google::protobuf::Reflection& set = *message.GetReflection();
  size_t index = 0;
  for (const element one : list) {
    std::string_view text;
    if (has_objects) {
      LargeObject object(one, absl::StrCat(pointer, "/", index++), in.errors());
      ReadFields(object, *field.object, *set.AddMessage(&message, &to));
    } else if (one.get(text) == simdjson::SUCCESS) {
      set.AddString(&message, &to, std::string(text));
    } else {
      return in.errors().Fail(pointer, expected);
    }
  }
}

void ReadNested(LargeObject& in, const Field& field, const FieldDescriptor& to, Message& message) {
  Message& nested = *message.GetReflection()->MutableMessage(&message, &to);
  if (!IsTime(to)) {
    LargeObject object = in.Object(field.name);
    return ReadFields(object, *field.object, nested);
  }
  const absl::StatusOr<google::protobuf::Timestamp> time =
      TimestampFromText(in.String(field.name), in.PointerTo(field.name));
  if (!time.ok()) return in.errors().Set(time.status());
  nested.CopyFrom(*time);
}

void ReadValue(LargeObject& in, const Field& field, const FieldDescriptor& to, element value,
               Message& message) {
  if (IsList(to)) return ReadList(in, field, to, value, message);
  const google::protobuf::Reflection& set = *message.GetReflection();
  if (IsMetadata(to)) {
    for (v1::NamedString& entry : ReadMetadata(in, field.name)) {
      static_cast<v1::NamedString&>(*set.AddMessage(&message, &to)) = std::move(entry);
    }
    return;
  }
  switch (to.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return set.SetInt64(&message, &to, in.IntOf(field.name, value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set.SetUInt64(&message, &to, in.SeedOf(field.name, value));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set.SetDouble(&message, &to, in.NumberOf(field.name, value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set.SetBool(&message, &to, in.BoolOf(field.name, value));
    case FieldDescriptor::CPPTYPE_STRING:
      return set.SetString(&message, &to, in.StringOf(field.name, value));
    default:
      return ReadNested(in, field, to, message);
  }
}

void ReadField(LargeObject& in, const Field& field, Message& message) {
  const auto value = in.Take(field.name);
  const bool is_null = value && value->is_null();
  const bool is_absent = !value || is_null;
  if (field.to == kSame) {
    if (is_absent && !field.is_required) return SetFallbacks(*field.object, message);
    LargeObject object = in.ObjectOrEmpty(field.name);
    return ReadFields(object, *field.object, message);
  }
  // Most members are absent. They cost no look at the message's type.
  if (!value && !field.is_required && !HasFallback(field)) return;
  if (field.read != nullptr) {
    if (!is_absent || field.is_required) field.read(in, field.name, message);
    return;
  }
  const FieldDescriptor& to = FieldOf(*message.GetDescriptor(), field);
  const bool is_number = to.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  if (!is_absent || (is_null && is_number && !field.is_nullable)) {
    return ReadValue(in, field, to, *value, message);
  }
  if (field.is_required && !(is_null && field.is_nullable)) {
    return in.errors().Fail(
        in.PointerTo(field.name),
        absl::StrCat(KindOf(to), field.is_nullable ? " or null" : "", ", but it is missing"));
  }
  SetFallback(field, to, message);
}

// Returns the members of the JSON object that `members` lists without its braces.
OrderedJson Members(std::string_view members) {
  return OrderedJson::parse(absl::StrCat("{", AbslView(members), "}"));
}

OrderedJson Reference(std::string_view name) {
  return {{"$ref", absl::StrCat("#/components/schemas/", AbslView(name))}};
}

OrderedJson ObjectSchema(const ObjectFields& object, const Descriptor& type, OrderedJson* schemas);

// Returns the schema of one value: of the member, or of each element of a list.
OrderedJson ValueSchema(const Field& field, const Descriptor& type, OrderedJson* schemas) {
  if (!field.ref.empty()) return Reference(field.ref);
  if (field.read != nullptr) return OrderedJson::object();
  if (field.object != nullptr) {
    const Descriptor& nested = field.to == kSame ? type : *FieldOf(type, field).message_type();
    if (field.object->name.empty()) return ObjectSchema(*field.object, nested, schemas);
    AddSchema(*field.object, nested, schemas);
    return Reference(field.object->name);
  }
  const FieldDescriptor& to = FieldOf(type, field);
  if (IsMetadata(to)) return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  OrderedJson schema = {{"type", SchemaType(to)}};
  if (IsTime(to)) schema["format"] = "date-time";
  return schema;
}

void AddDefault(std::monostate, OrderedJson&) {}
template <typename T>
void AddDefault(const T& value, OrderedJson& schema) {
  schema["default"] = value;
}

OrderedJson MemberSchema(const Field& field, const Descriptor& type, OrderedJson* schemas) {
  OrderedJson schema = ValueSchema(field, type, schemas);
  const bool has_type = field.to != kSame && field.read == nullptr;
  if (has_type && IsList(FieldOf(type, field))) {
    schema.update(Members(field.items));
    schema = {{"type", "array"}, {"items", std::move(schema)}};
    if (field.min_count > 0) schema["minItems"] = field.min_count;
    if (field.max_count < SIZE_MAX) schema["maxItems"] = field.max_count;
  }
  if (field.is_nullable) schema["type"] = OrderedJson::array({schema["type"], "null"});
  schema.update(Members(field.schema));
  std::visit([&schema](const auto& value) { AddDefault(value, schema); }, field.fallback);
  if (!field.about.empty()) schema["description"] = std::string(field.about);
  return schema;
}

OrderedJson ObjectSchema(const ObjectFields& object, const Descriptor& type, OrderedJson* schemas) {
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  for (const Field& field : object.fields) {
    const bool is_hidden = field.read != nullptr && field.schema.empty() && field.ref.empty();
    if (is_hidden) continue;
    properties[std::string(field.name)] = MemberSchema(field, type, schemas);
    if (field.is_required) required.push_back(std::string(field.name));
  }
  OrderedJson schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

}  // namespace

void ReadFields(LargeObject& in, const ObjectFields& object, Message& message) {
  for (const Field& field : object.fields) {
    if (field.unless.empty() || !in.Has(field.unless)) ReadField(in, field, message);
  }
}

absl::Status ReadMessage(const std::string& text, const ObjectFields& object, Message& message) {
  // A small body is checked more strictly than its parser does, in the parts without fields too.
  RETURN_IF_ERROR(CheckJsonSize(text));
  RETURN_IF_ERROR(CheckJson(text));
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const element root, ParseLargeJson(parser, text));
  LargeContext errors;
  LargeObject in(root, "", errors);
  ReadFields(in, object, message);
  return errors.status();
}

void AddSchema(const ObjectFields& object, const Descriptor& type, OrderedJson* schemas) {
  (*schemas)[std::string(object.name)] = ObjectSchema(object, type, schemas);
}

}  // namespace lathe::gateway
