#include "services/api-gateway/http/byte_range.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

// Accepts digits only, whereas SimpleAtoi also takes signs and spaces.
std::optional<int64_t> ReadPosition(absl::string_view text) {
  const bool is_number =
      !text.empty() &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  int64_t value = 0;
  if (!is_number || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ByteRange> ParseByteRange(std::string_view range, int64_t num_bytes) {
  absl::string_view rest = AbslView(range);
  if (!absl::ConsumePrefix(&rest, "bytes=")) return std::nullopt;
  const size_t dash = rest.find('-');
  if (dash == absl::string_view::npos) return std::nullopt;
  const absl::string_view first_text = rest.substr(0, dash);
  const absl::string_view last_text = rest.substr(dash + 1);
  const std::optional<int64_t> first = ReadPosition(first_text);
  const std::optional<int64_t> last = ReadPosition(last_text);
  if (first_text.empty() && last) {  // a suffix: the last `last` bytes
    return ByteRange{num_bytes - std::min(*last, num_bytes), num_bytes};
  }
  if (!first || (!last && !last_text.empty()) || (last && *last < *first)) return std::nullopt;
  if (*first >= num_bytes) return ByteRange{num_bytes, num_bytes};
  return ByteRange{*first, last ? std::min(*last, num_bytes - 1) + 1 : num_bytes};
}

}  // namespace lathe::gateway
