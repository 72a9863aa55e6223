#include "libs/common/json/json.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

absl::Status WrongType(const std::string& key, const char* expected, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %s, expected %s", key, value.type_name(), expected));
}

absl::StatusOr<const Json*> Member(const Json& object, const std::string& key) {
  if (!JsonHas(object, key)) return absl::InvalidArgumentError(key + " is missing");
  return &object.at(key);
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not valid JSON at byte %d: %s",
                                                      std::string(what), error.byte, error.what()));
  } catch (const Json::out_of_range&) {
    return absl::InvalidArgumentError(std::string(what) + " has a number out of range");
  }
}

absl::StatusOr<Json> ReadJsonFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read " + path.string());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ParseJson(text, path.string());
}

absl::StatusOr<std::string> JsonString(const Json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_string()) return WrongType(key, "a string", *value);
  return value->get<std::string>();
}

absl::StatusOr<int64_t> JsonInt(const Json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_number_integer()) return WrongType(key, "an integer", *value);
  return value->get<int64_t>();
}

absl::StatusOr<double> JsonNumber(const Json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_number()) return WrongType(key, "a number", *value);
  return value->get<double>();
}

absl::StatusOr<bool> JsonBool(const Json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_boolean()) return WrongType(key, "true or false", *value);
  return value->get<bool>();
}

bool JsonHas(const Json& object, const std::string& key) {
  return object.is_object() && object.contains(key) && !object.at(key).is_null();
}

std::string ToJsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lathe
