#include "services/worker/tokenizer/component.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {
namespace {

constexpr size_t kMaxComponents = 64;  // per stage; each processes the whole text

// Prefixes an error message with the component's name.
template <typename T>
absl::StatusOr<T> Named(const Component& component, absl::StatusOr<T> value) {
  if (value.ok()) return value;
  return component.Wrong(std::string(value.status().message()));
}

absl::StatusOr<Component> MakeComponent(const Json& json, const std::string& stage) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is %s, expected an object", stage, json.type_name()));
  }
  const auto type = JsonString(json, "type");
  if (!type.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(stage, ": ", type.status().message()));
  }
  return Component{.json = &json, .where = absl::StrCat(stage, " ", *type), .type = *type};
}

}  // namespace

absl::Status Component::Wrong(const std::string& problem) const {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", problem));
}

absl::Status Component::NotSupported() const {
  return absl::InvalidArgumentError(absl::StrCat(where, " is not supported"));
}

absl::Status Component::CheckFields(std::initializer_list<std::string_view> known) const {
  for (const auto& [field, value] : json->items()) {
    if (field == "type") continue;
    if (std::find(known.begin(), known.end(), field) == known.end()) {
      return Wrong(absl::StrFormat("field %s is not supported", field));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Component::Bool(const std::string& field) const {
  return Named(*this, JsonBool(*json, field));
}

absl::StatusOr<std::string> Component::String(const std::string& field) const {
  return Named(*this, JsonString(*json, field));
}

absl::StatusOr<char32_t> Component::Character(const std::string& field) const {
  ASSIGN_OR_RETURN(const std::string text, String(field));
  if (text.empty() || CharacterBytes(text[0]) != text.size()) {
    return Wrong(absl::StrFormat("%s is \"%s\", expected one character", field, text));
  }
  size_t position = 0;
  return NextCharacter(text, position);
}

absl::StatusOr<int64_t> Component::Count(const std::string& field) const {
  ASSIGN_OR_RETURN(const int64_t count, Named(*this, JsonInt(*json, field)));
  if (count >= 0) return count;
  return Wrong(absl::StrFormat("%s is %d, must be at least 0", field, count));
}

absl::StatusOr<const Json*> Component::Array(const std::string& field) const {
  if (!JsonHas(*json, field)) return Wrong(absl::StrCat(field, " is missing"));
  const Json& value = json->at(field);
  if (value.is_array()) return &value;
  return Wrong(absl::StrFormat("%s is %s, expected an array", field, value.type_name()));
}

absl::StatusOr<bool> Component::BoolOr(const std::string& field, bool otherwise) const {
  if (!JsonHas(*json, field)) return otherwise;
  return Bool(field);
}

absl::StatusOr<std::string> Component::StringOr(const std::string& field,
                                                std::string otherwise) const {
  if (!JsonHas(*json, field)) return otherwise;
  return String(field);
}

absl::StatusOr<std::vector<Component>> ReadComponents(const Json& root, const std::string& stage,
                                                      const std::string& parts) {
  std::vector<Component> found;
  if (!JsonHas(root, stage)) return found;
  // Avoids recursion, because a file may nest sequences too deeply for the stack.
  std::vector<const Json*> open = {&root.at(stage)};
  while (!open.empty()) {
    const Json& json = *open.back();
    open.pop_back();
    ASSIGN_OR_RETURN(Component component, MakeComponent(json, stage));
    if (component.type != "Sequence") {
      if (found.size() == kMaxComponents) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s has more than %d components", stage, kMaxComponents));
      }
      found.push_back(std::move(component));
      continue;
    }
    RETURN_IF_ERROR(component.CheckFields({parts}));
    ASSIGN_OR_RETURN(const Json* inner, component.Array(parts));
    for (size_t i = inner->size(); i-- > 0;) open.push_back(&(*inner)[i]);
  }
  return found;
}

absl::StatusOr<int32_t> ReadTokenId(const Json& id) {
  if (id.is_number_integer() && id >= 0 && id < kMaxTokenId) return id.get<int32_t>();
  const std::string value = id.is_number() ? ToJsonText(id) : id.type_name();
  return absl::InvalidArgumentError(
      absl::StrFormat("token id is %s, expected 0 to %d", value, kMaxTokenId - 1));
}

}  // namespace lathe::worker
