// Converts text to token ids and back, by a Hugging Face tokenizer.json with a BPE model. The model
// is byte-level (Qwen, Llama 3, GPT-OSS) or has ▁ for spaces and bytes for unknown characters
// (Llama 2, Mistral, Gemma).
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

// Immutable, usable from any thread. Ids and text are equal to those of the `tokenizers` library
// (0.23). Only bytes that are not UTF-8 differ: here they stay, there they become U+FFFD.
class Tokenizer {
 public:
  // Reads <folder>/tokenizer.json, which is untrusted. NotFound if it is missing. InvalidArgument
  // names the field if tokens cannot be decoded. Encode returns the errors that concern only
  // encoding.
  static absl::StatusOr<Tokenizer> Load(const std::filesystem::path& folder);

  // Returns the ids of `text`. `add_special_tokens` adds the special tokens that the file puts
  // around a text. InvalidArgument if the text is not UTF-8 or longer than kMaxTextBytes, or if a
  // pattern of the file exceeds its work limits. InvalidArgument also names a part of the file that
  // is not supported.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // Returns the bytes that the token adds to the text before it. A character may span several
  // tokens. Special tokens have bytes too. Empty for an id without a token.
  const std::string& TokenBytes(int64_t token_id) const;

  // Returns the tokens as a separate text. Its beginning may differ from the concatenated
  // TokenBytes: tokenizers with ▁ drop the space that encoding put before the first word. To
  // continue a prompt, use the TokenBytes of generated tokens. Decode of generated tokens alone may
  // lack their first space, as it does in a client's tokenizer.
  std::string Decode(absl::Span<const int32_t> token_ids, bool skip_special_tokens = false) const;

  // Largest id that has a token, plus one.
  int64_t num_ids() const { return static_cast<int64_t>(bytes_.size()); }
  // The same for tokens that are not special.
  int64_t num_text_ids() const;

 private:
  Tokenizer(TokenDecoder decoder, absl::StatusOr<TextEncoder> encoder)
      : decoder_(std::move(decoder)), encoder_(std::move(encoder)) {}

  absl::Status ReadVocabulary(const Json& root);
  absl::Status ReadAdded(const Json& root);
  absl::Status PutToken(int32_t id, const std::string& token);

  TokenDecoder decoder_;
  absl::StatusOr<TextEncoder> encoder_;
  std::vector<std::string> bytes_;                         // by id
  absl::flat_hash_map<int32_t, std::string> first_bytes_;  // as a text's first token, if not equal
  absl::flat_hash_set<int32_t> ids_;                       // ids that have a token
  absl::flat_hash_set<int32_t> special_ids_;
};

}  // namespace lathe::worker
