#include "services/api-gateway/json/field_reader.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "services/api-gateway/json/unknown_field.h"

namespace lathe::gateway {
namespace {

const Json& EmptyObject() {
  static const Json empty = Json::object();
  return empty;
}

bool IsInt64(const Json& value) {
  if (!value.is_number_integer()) return false;
  return !value.is_number_unsigned() ||
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string pointer)
    : object_(object.is_object() ? object : EmptyObject()), pointer_(std::move(pointer)) {
  if (!object.is_object()) Fail("", std::string("an object, got ") + object.type_name());
}

FieldReader::~FieldReader() {
  if (!status_.ok()) return;
  for (const auto& member : object_.items()) {
    if (std::find(asked_names_.begin(), asked_names_.end(), member.key()) != asked_names_.end()) {
      continue;
    }
    NoteUnknownField(pointer_, member.key(), {asked_names_.begin(), asked_names_.end()});
  }
}

const Json* FieldReader::Find(const std::string& name) const {
  if (std::find(asked_names_.begin(), asked_names_.end(), name) == asked_names_.end()) {
    asked_names_.push_back(name);
  }
  const auto member = object_.find(name);
  return member == object_.end() || member->is_null() ? nullptr : &*member;
}

std::string FieldReader::PointerTo(const std::string& name) const {
  return name.empty() ? pointer_ : pointer_ + "/" + name;
}

void FieldReader::Fail(const std::string& name, const std::string& expected) {
  if (!status_.ok()) return;
  const std::string pointer = PointerTo(name);
  status_ = WithDetail(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected %s", pointer.empty() ? std::string("body") : "field " + pointer, expected)),
      "invalid_field", pointer);
}

bool FieldReader::Has(const std::string& name) const { return Find(name) != nullptr; }

std::string FieldReader::String(const std::string& name) {
  if (!Has(name)) Fail(name, "a string, but it is missing");
  return StringOr(name, "");
}

int64_t FieldReader::Int(const std::string& name) {
  if (!Has(name)) Fail(name, "an integer, but it is missing");
  return IntOr(name, 0);
}

double FieldReader::Number(const std::string& name) {
  if (!object_.contains(name)) Fail(name, "a number, but it is missing");
  return NumberOr(name, 0);
}

std::string FieldReader::StringOr(const std::string& name, std::string fallback) {
  return OptionalString(name).value_or(std::move(fallback));
}

int64_t FieldReader::IntOr(const std::string& name, int64_t fallback) {
  return OptionalInt(name).value_or(fallback);
}

double FieldReader::NumberOr(const std::string& name, double fallback) {
  Find(name);  // marks the name as known; Find takes null for absent, but null is an error here
  const auto value = object_.find(name);
  if (value == object_.end()) return fallback;
  if (value->is_number()) return value->get<double>();
  Fail(name, std::string("a finite number, got ") + value->type_name());
  return fallback;
}

bool FieldReader::BoolOr(const std::string& name, bool fallback) {
  const Json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, std::string("a boolean, got ") + value->type_name());
  return fallback;
}

std::optional<std::string> FieldReader::OptionalString(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, std::string("a string, got ") + value->type_name());
  return std::nullopt;
}

std::optional<int64_t> FieldReader::OptionalInt(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (IsInt64(*value)) return value->get<int64_t>();
  Fail(name, std::string("a 64-bit integer, got ") +
                 (value->is_number() ? "another number" : value->type_name()));
  return std::nullopt;
}

std::optional<uint64_t> FieldReader::OptionalSeed(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (value->is_number_integer()) return static_cast<uint64_t>(value->get<int64_t>());
  Fail(name, std::string("an integer, got ") + value->type_name());
  return std::nullopt;
}

const Json& FieldReader::Object(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return EmptyObject();
  if (value->is_object()) return *value;
  Fail(name, std::string("an object, got ") + value->type_name());
  return EmptyObject();
}

}  // namespace lathe::gateway
