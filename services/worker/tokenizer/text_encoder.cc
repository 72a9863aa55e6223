#include "services/worker/tokenizer/text_encoder.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/replacement.h"
#include "services/worker/tokenizer/unicode.h"

namespace lathe::worker {
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
