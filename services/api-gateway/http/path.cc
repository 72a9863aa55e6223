#include "services/api-gateway/http/path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

absl::Status BadPath(std::string_view why) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat("bad path: %s", AbslView(why))),
                    "bad_path");
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool IsPrintable(char c) { return c > 0x20 && c < 0x7f; }

absl::StatusOr<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexValue(text[i + 1]) < 0 || HexValue(text[i + 2]) < 0) {
      return BadPath("a % is not followed by two hexadecimal digits");
    }
    decoded += static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2]));
    i += 2;
  }
  return decoded;
}

absl::StatusOr<std::string> DecodeSegment(std::string_view text) {
  ASSIGN_OR_RETURN(std::string segment, Decode(text, /*plus_is_space=*/false));
  if (segment == "." || segment == "..") return BadPath("'.' and '..' are not allowed");
  const bool is_clean = std::all_of(segment.begin(), segment.end(), [](char c) {
    return (IsPrintable(c) || c == ' ') && c != '/';
  });
  if (!is_clean) return BadPath("a segment has an encoded slash, control or non-ASCII character");
  return segment;
}

absl::Status ParseQuery(std::string_view text, std::vector<QueryParameter>& query) {
  for (absl::string_view pair : absl::StrSplit(AbslView(text), '&', absl::SkipEmpty())) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = StdView(pair.substr(0, equals));
    const std::string_view value = StdView(pair.substr(std::min(equals + 1, pair.size())));
    QueryParameter parameter;
    ASSIGN_OR_RETURN(parameter.name, Decode(name, /*plus_is_space=*/true));
    ASSIGN_OR_RETURN(parameter.value, Decode(value, /*plus_is_space=*/true));
    query.push_back(std::move(parameter));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> ParseTarget(std::string_view target) {
  if (target.empty() || target[0] != '/') return BadPath("it does not begin with '/'");
  if (!std::all_of(target.begin(), target.end(), IsPrintable)) {
    return BadPath("it has a space, control or non-ASCII character");
  }
  const size_t question = std::min(target.find('?'), target.size());
  Target parsed;
  parsed.path = target.substr(0, question);
  for (absl::string_view segment : absl::StrSplit(AbslView(parsed.path).substr(1), '/')) {
    ASSIGN_OR_RETURN(std::string decoded, DecodeSegment(StdView(segment)));
    parsed.segments.push_back(std::move(decoded));
  }
  RETURN_IF_ERROR(ParseQuery(target.substr(std::min(question + 1, target.size())), parsed.query));
  return parsed;
}

}  // namespace lathe::gateway
