// Replaces pattern matches in text, for the normalizer and the decoder.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

// Maximum size of a text, before and during encoding. Longer texts are rejected.
inline constexpr size_t kMaxTextBytes = 64 << 20;

// Returns InvalidArgument if `num_bytes` exceeds kMaxTextBytes.
absl::Status CheckTextSize(size_t num_bytes);

// Returns `text` with each match replaced by `content`. InvalidArgument if the pattern exceeds its
// work limits or the result exceeds kMaxTextBytes.
absl::StatusOr<std::string> ReplaceAll(PatternMatcher& matcher, std::string_view text,
                                       std::string_view content);

}  // namespace lathe::worker
