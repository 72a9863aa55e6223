// Token ids to text, from a Hugging Face tokenizer.json with byte-level BPE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::worker {

// Immutable, usable from any thread.
class Tokenizer {
 public:
  // Reads <folder>/tokenizer.json. NotFound when it is missing; InvalidArgument naming the field
  // when it is broken or its model or decoder is not byte-level BPE.
  static absl::StatusOr<Tokenizer> Load(const std::filesystem::path& folder);

  // Bytes the token stands for; a character may be spread over several tokens. Added tokens,
  // special ones included, are their content. Empty for an id without a token.
  const std::string& TokenBytes(int64_t token_id) const;

  std::string Decode(const std::vector<int32_t>& token_ids) const;

  // Largest id with a token, plus one.
  int64_t num_ids() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  explicit Tokenizer(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {}

  std::vector<std::string> bytes_;  // by token id
};

}  // namespace lathe::worker
