// The stage "added_tokens" of tokenizer.json: tokens found in text before the model sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word goes on at its ends
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // its normalized content is looked for in normalized text
  bool special = false;      // left out of text for people
};

// In the file's order. InvalidArgument naming what is broken or not supported.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& root);

// Finds tokens in text, the longest of those that begin first. Immutable, usable from any thread.
class AddedTokenFinder {
 public:
  // Looks for `content`, not empty, as `token`; the first of equal contents counts.
  void Add(std::string_view content, const AddedToken& token);

  struct Section {
    TextRange range;
    const AddedToken* token;  // nullptr: text between tokens
  };
  // `text` cut at the tokens, in order. Pieces of text are not empty.
  std::vector<Section> Cut(std::string_view text) const;

 private:
  // The longest token at `position`, -1 for none.
  int32_t LongestAt(std::string_view text, size_t position, size_t& end) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint64_t, int32_t> children_;  // by node << 8 | byte
  std::vector<int32_t> token_of_node_ = {-1};        // index in tokens_, -1 for none
};

}  // namespace lathe::worker
