#include "services/worker/tokenizer/text_encoder.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/text_pattern.h"
#include "services/worker/tokenizer/unicode.h"

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

namespace {

absl::Status CheckText(std::string_view text) {
  RETURN_IF_ERROR(CheckTextSize(text.size()));
  const size_t invalid = FirstInvalidByte(text);
  if (invalid == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("text is not UTF-8 at byte %d", invalid));
}

}  // namespace

struct TextEncoder::Run {
  std::vector<int32_t> ids;
  BpeWords words;
};

// Ignores truncation and padding, which only concern batches of texts.
absl::StatusOr<TextEncoder> TextEncoder::Read(const Json& root) {
  const Component file = {.json = &root, .where = "tokenizer.json", .type = ""};
  RETURN_IF_ERROR(
      file.CheckFields({"version", "truncation", "padding", "added_tokens", "normalizer",
                        "pre_tokenizer", "post_processor", "decoder", "model"}));
  TextEncoder encoder;
  ASSIGN_OR_RETURN(encoder.normalizer_, TextNormalizer::Read(root));
  ASSIGN_OR_RETURN(encoder.pre_tokenizer_, PreTokenizer::Read(root));
  if (encoder.pre_tokenizer_.AsksForFirst() && !encoder.normalizer_.KeepsBeginning()) {
    return absl::InvalidArgumentError(
        "pre_tokenizer Metaspace: prepend_scheme first is not supported behind a normalizer that "
        "may drop the beginning of a text");
  }
  ASSIGN_OR_RETURN(encoder.model_, BpeModel::Read(root));
  ASSIGN_OR_RETURN(encoder.post_processor_, PostProcessor::Read(root));
  ASSIGN_OR_RETURN(const std::vector<AddedToken> added, ReadAddedTokens(root));
  for (const AddedToken& token : added) {
    if (!token.normalized) {
      if (!token.content.empty()) encoder.in_text_.Add(token.content, token);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string content, encoder.normalizer_.Apply(token.content));
    if (!content.empty()) encoder.in_normalized_.Add(content, token);
  }
  return encoder;
}

absl::Status TextEncoder::EncodeNormalized(std::string_view text, bool is_first, Run& run) const {
  ASSIGN_OR_RETURN(const PieceList list, pre_tokenizer_.Apply(std::string(text), is_first));
  for (const TextRange& piece : list.pieces) {
    RETURN_IF_ERROR(run.words.Append(Part(list.text, piece), run.ids));
  }
  return absl::OkStatus();
}

absl::Status TextEncoder::EncodeText(std::string_view text, bool is_first, Run& run) const {
  ASSIGN_OR_RETURN(const std::string normal, normalizer_.Apply(std::string(text)));
  for (const AddedTokenFinder::Section& section : in_normalized_.Cut(normal)) {
    if (section.token != nullptr) {
      run.ids.push_back(section.token->id);
      continue;
    }
    RETURN_IF_ERROR(
        EncodeNormalized(Part(normal, section.range), is_first && section.range.begin == 0, run));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> TextEncoder::Encode(std::string_view text,
                                                         bool add_special_tokens) const {
  RETURN_IF_ERROR(CheckText(text));
  Run run = {.ids = {}, .words = BpeWords(model_)};
  if (add_special_tokens) run.ids = post_processor_.before();
  for (const AddedTokenFinder::Section& section : in_text_.Cut(text)) {
    if (section.token != nullptr) {
      run.ids.push_back(section.token->id);
    } else {
      RETURN_IF_ERROR(EncodeText(Part(text, section.range), section.range.begin == 0, run));
    }
  }
  if (add_special_tokens) {
    const std::vector<int32_t>& behind = post_processor_.behind();
    run.ids.insert(run.ids.end(), behind.begin(), behind.end());
  }
  return std::move(run.ids);
}

}  // namespace lathe::worker
