// How a pattern's matches cut a text into pieces.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {

// What becomes of a match: dropped, a piece, the end of the piece before it, the beginning of the
// piece behind it, one piece together with matches that touch it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name);

// The pieces of a text of `size` bytes with these matches, in order, empty ones left out. With
// `invert` what lies between matches counts as match, and the other way round.
std::vector<TextRange> SplitAt(const std::vector<TextRange>& matches, size_t size,
                               SplitBehavior behavior, bool invert);

}  // namespace lathe::worker
