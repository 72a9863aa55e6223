// Stage "added_tokens" of tokenizer.json: finds tokens in text before the model encodes the rest.
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
  bool single_word = false;  // matches only between word borders
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space behind it
  bool normalized = false;   // normalized content matches in normalized text
  bool special = false;      // skipped by Decode with skip_special_tokens
};

// Returns the tokens in the file's order. InvalidArgument names what is broken or not supported.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& root);

// Finds tokens in text: the leftmost match first, and of those at one position the longest.
// Immutable after the last Add, then usable from any thread.
class AddedTokenFinder {
 public:
  // Makes Cut find `content`, which must not be empty, as `token`. If two contents are equal, the
  // first one added counts.
  void Add(std::string_view content, const AddedToken& token);

  struct Section {
    TextRange range;
    const AddedToken* token;  // null: text between tokens
  };
  // Cuts `text` into tokens and the text between them, in order. No section is empty.
  std::vector<Section> Cut(std::string_view text) const;

 private:
  // Returns the index of the longest token at `position` and sets `end`. Returns -1 for none.
  int32_t LongestAt(std::string_view text, size_t position, size_t& end) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint64_t, int32_t> children_;  // by node << 8 | byte
  std::vector<int32_t> token_of_node_ = {-1};        // index in tokens_, -1 for none
};

}  // namespace lathe::worker
