// Replacing what a pattern matches; the normalizer and the decoder share it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

// A text of a tokenizer, before and while it is encoded; longer ones are refused.
inline constexpr size_t kMaxTextBytes = 64 << 20;

// InvalidArgument when `num_bytes` is above kMaxTextBytes.
absl::Status CheckTextSize(size_t num_bytes);

// `text` with `content` in the place of each match. InvalidArgument when a bound is reached.
absl::StatusOr<std::string> ReplaceAll(PatternMatcher& matcher, std::string_view text,
                                       std::string_view content);

}  // namespace lathe::worker
