// Scans every byte of a large body. It does work per bracket and string, but none per number.
#include "services/api-gateway/json/list_scanner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

constexpr size_t kNone = std::string::npos;
constexpr char kSpace[] = " \t\n\r";

// Returns '\0' at the end of the text. A NUL inside the text is not JSON either.
char At(const std::string& text, size_t at) { return at < text.size() ? text[at] : '\0'; }

size_t SkipSpace(const std::string& text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

// Returns the offset behind the value whose opening bracket is at `at`; kNone if it has no end.
// Does not compare the kinds of brackets.
size_t SkipBrackets(const std::string& text, size_t at) {
  int64_t depth = 0;
  while (true) {
    at += std::strcspn(text.c_str() + at, "\"[]{}");
    const char c = At(text, at);
    if (c == '\0') return kNone;
    if (c == '"') {
      at = SkipJsonString(text, at);
      if (at == kNone) return kNone;
      continue;
    }
    depth += c == '[' || c == '{' ? 1 : -1;
    ++at;
    if (depth == 0) return at;
  }
}

// Returns the offset behind the value that begins at `at`; kNone if no value does.
size_t SkipValue(const std::string& text, size_t at) {
  const char c = At(text, at);
  if (c == '[' || c == '{') return SkipBrackets(text, at);
  if (c == '"') return SkipJsonString(text, at);
  const size_t size = std::strcspn(text.c_str() + at, ",:\"[]{} \t\n\r");
  return size == 0 ? kNone : at + size;
}

// Returns the offset of the value of member `name` in the object whose brace is at `at`; kNone if
// it is not found.
size_t FindMember(const std::string& text, size_t at, std::string_view name) {
  if (At(text, at) != '{') return kNone;
  do {
    const size_t quote = SkipSpace(text, at + 1);
    if (At(text, quote) != '"') return kNone;
    at = SkipJsonString(text, quote);
    if (at == kNone) return kNone;
    const std::string_view key = std::string_view(text).substr(quote + 1, at - quote - 2);
    at = SkipSpace(text, at);
    if (At(text, at) != ':') return kNone;
    at = SkipSpace(text, at + 1);
    if (key == name) return at;
    at = SkipValue(text, at);
    if (at == kNone) return kNone;
    at = SkipSpace(text, at);
  } while (At(text, at) == ',');
  return kNone;
}

}  // namespace

std::optional<ListScanner> ListScanner::Find(const std::string& text,
                                             std::initializer_list<std::string_view> names) {
  size_t at = SkipSpace(text, 0);
  for (const std::string_view name : names) {
    at = FindMember(text, at, name);
    if (at == kNone) return std::nullopt;
  }
  if (At(text, at) != '[') return std::nullopt;
  return ListScanner(text, at + 1);
}

std::optional<std::string_view> ListScanner::Next() {
  if (at_ == kNone || end_ != kNone) return std::nullopt;
  const bool is_first = at_ == begin_;
  at_ = SkipSpace(text_, at_);
  if (At(text_, at_) == ']') {
    end_ = at_;
    return std::nullopt;
  }
  if (!is_first) {
    if (At(text_, at_) != ',') {
      at_ = kNone;
      return std::nullopt;
    }
    at_ = SkipSpace(text_, at_ + 1);
  }
  const size_t begin = at_;
  at_ = SkipValue(text_, begin);
  if (at_ == kNone) return std::nullopt;
  return std::string_view(text_).substr(begin, at_ - begin);
}

std::string ListScanner::Rest() const {
  const std::string_view text = text_;
  return absl::StrCat(AbslView(text.substr(0, begin_)), AbslView(text.substr(end_)));
}

}  // namespace lathe::gateway
