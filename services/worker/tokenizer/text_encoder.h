// Encodes text as token ids with the stages of a tokenizer.json, in order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/added_tokens.h"
#include "services/worker/tokenizer/bpe_model.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/pre_tokenizer.h"
#include "services/worker/tokenizer/text_normalizer.h"

namespace lathe::worker {

// Special tokens before and behind a text. Immutable, usable from any thread.
class PostProcessor {
 public:
  // Reads the stage. InvalidArgument names the component that is broken or not supported.
  static absl::StatusOr<PostProcessor> Read(const Json& root);

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& behind() const { return behind_; }

 private:
  absl::Status AddTemplate(const Component& component);

  std::vector<int32_t> before_;
  std::vector<int32_t> behind_;
};

// All encoding stages of a file. Immutable, usable from any thread.
class TextEncoder {
 public:
  // Reads all stages. InvalidArgument names the component that is broken or not supported.
  static absl::StatusOr<TextEncoder> Read(const Json& root);

  // Returns the ids of `text`. InvalidArgument if it is too long or not UTF-8, or if a pattern
  // exceeds its work limits.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  const TextNormalizer& normalizer() const { return normalizer_; }

 private:
  struct Run;

  absl::Status EncodeText(std::string_view text, bool is_first, Run& run) const;
  absl::Status EncodeNormalized(std::string_view text, bool is_first, Run& run) const;

  AddedTokenFinder in_text_;        // added tokens that match in the original text
  AddedTokenFinder in_normalized_;  // added tokens that match in normalized text
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  PostProcessor post_processor_;
};

}  // namespace lathe::worker
