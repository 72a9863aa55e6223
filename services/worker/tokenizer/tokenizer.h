// Text to token ids and back, from a Hugging Face tokenizer.json with a BPE model: byte-level
// (Qwen, Llama 3, GPT-OSS) or with ▁ for spaces and bytes for unknown characters (Llama 2, Mistral,
// Gemma).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text_encoder.h"
#include "services/worker/tokenizer/token_decoder.h"

namespace lathe::worker {

// Immutable, usable from any thread. Ids and text are those of the `tokenizers` library (0.23),
// but for bytes that are not UTF-8: they stay what they are, where it shows U+FFFD.
class Tokenizer {
 public:
  // Reads <folder>/tokenizer.json, which may be anything. NotFound when it is missing;
  // InvalidArgument naming the field when tokens cannot be decoded. What stands only in the way of
  // encoding is what Encode answers.
  static absl::StatusOr<Tokenizer> Load(const std::filesystem::path& folder);

  // `add_special_tokens`: with those that the model expects around a text, as the file says.
  // InvalidArgument when the text is not UTF-8 or longer than kMaxTextBytes, a pattern of the file
  // takes too long on it, or the file has a part that is not supported, which it names.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // What the token adds to the text before it; a character may be spread over several tokens.
  // Special tokens are shown. Empty for an id without a token.
  const std::string& TokenBytes(int64_t token_id) const;

  // The tokens as a text of its own. It differs from the TokenBytes in a row at the beginning,
  // where the ▁ kinds drop the space that encoding put before the first word. So generated tokens
  // continue a prompt by their TokenBytes; Decode of them alone may begin without their first
  // space, as a client's tokenizer shows it.
  std::string Decode(absl::Span<const int32_t> token_ids, bool skip_special_tokens = false) const;

  // Largest id with a token, plus one.
  int64_t num_ids() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  Tokenizer(TokenDecoder decoder, absl::StatusOr<TextEncoder> encoder)
      : decoder_(std::move(decoder)), encoder_(std::move(encoder)) {}

  absl::Status ReadVocabulary(const Json& root);
  absl::Status ReadAdded(const Json& root);
  absl::Status PutToken(int32_t id, const std::string& token);

  TokenDecoder decoder_;
  absl::StatusOr<TextEncoder> encoder_;
  std::vector<std::string> bytes_;                         // by id
  absl::flat_hash_map<int32_t, std::string> first_bytes_;  // of a text's first token, if others
  absl::flat_hash_set<int32_t> ids_;                       // with a token
  absl::flat_hash_set<int32_t> special_ids_;
};

}  // namespace lathe::worker
