#include "services/worker/tokenizer/post_processor.h"

#include <string>

#include "absl/status/status.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Returns member `key` of `json`, or a null value if it is missing.
const Json& MemberOrNull(const Json& json, const std::string& key) {
  static const Json none;
  return JsonHas(json, key) ? json.at(key) : none;
}

absl::StatusOr<std::vector<int32_t>> SpecialIds(const Component& component, const Json& token) {
  const auto name = JsonString(token, "id");
  if (!name.ok()) return component.Wrong("a special token of single has no id");
  const Json& known = MemberOrNull(*component.json, "special_tokens");
  const Json& ids = MemberOrNull(MemberOrNull(known, *name), "ids");
  if (!ids.is_array()) return component.Wrong("special_tokens has no ids of " + *name);
  std::vector<int32_t> found;
  for (const Json& json : ids) {
    ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(json));
    found.push_back(id);
  }
  return found;
}

}  // namespace

// Reads only the template `single`, because pairs of texts are never encoded.
absl::Status PostProcessor::AddTemplate(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields({"single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const Json* single, component.Array("single"));
  std::vector<int32_t> before, behind;
  bool has_text = false;
  for (const Json& part : *single) {
    if (JsonHas(part, "Sequence")) {
      const auto name = JsonString(part.at("Sequence"), "id");
      if (has_text || !name.ok() || *name != "A") {
        return component.Wrong("single is not special tokens around one text A");
      }
      has_text = true;
    } else if (JsonHas(part, "SpecialToken")) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       SpecialIds(component, part.at("SpecialToken")));
      std::vector<int32_t>& side = has_text ? behind : before;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      return component.Wrong("a part of single is neither a Sequence nor a SpecialToken");
    }
  }
  if (!has_text) return component.Wrong("single has no text");
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
  return absl::OkStatus();
}

absl::StatusOr<PostProcessor> PostProcessor::Read(const Json& root) {
  ASSIGN_OR_RETURN(const std::vector<Component> components,
                   ReadComponents(root, "post_processor", "processors"));
  PostProcessor processor;
  for (const Component& component : components) {
    if (component.type == "TemplateProcessing") {
      RETURN_IF_ERROR(processor.AddTemplate(component));
    } else if (component.type == "ByteLevel") {
      // ByteLevel changes only offsets, which are not kept.
      RETURN_IF_ERROR(component.CheckFields({"add_prefix_space", "trim_offsets", "use_regex"}));
    } else {
      return component.NotSupported();
    }
  }
  return processor;
}

}  // namespace lathe::worker
