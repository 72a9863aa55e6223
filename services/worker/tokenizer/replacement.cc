#include "services/worker/tokenizer/replacement.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {

absl::Status CheckTextSize(size_t num_bytes) {
  if (num_bytes <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("text has %d bytes, limit is %d", num_bytes, kMaxTextBytes));
}

absl::StatusOr<std::string> ReplaceAll(PatternMatcher& matcher, std::string_view text,
                                       std::string_view content) {
  std::vector<TextRange> matches;
  RETURN_IF_ERROR(matcher.FindAll(text, matches));
  RETURN_IF_ERROR(CheckTextSize(text.size() + matches.size() * content.size()));
  std::string replaced;
  replaced.reserve(text.size());
  size_t end = 0;
  for (const TextRange& match : matches) {
    replaced += text.substr(end, match.begin - end);
    replaced += content;
    end = match.end;
  }
  replaced += text.substr(end);
  return replaced;
}

}  // namespace lathe::worker
