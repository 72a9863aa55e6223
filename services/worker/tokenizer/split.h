// Cuts a text into pieces at the matches of a pattern.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {

// Treatment of a match, in order: dropped, a piece by itself, merged with the text before it,
// merged with the text behind it, merged with adjacent matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Returns the pieces of a text of `size` bytes with these matches, in order and not empty. `invert`
// swaps the roles of the matches and the text between them.
std::vector<TextRange> SplitAt(const std::vector<TextRange>& matches, size_t size,
                               SplitBehavior behavior, bool invert);

}  // namespace lathe::worker
