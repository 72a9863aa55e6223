// Walking over JSON text without a parser.
#pragma once

#include <cstddef>
#include <string_view>

namespace lathe::gateway {

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Returns the offset behind the string whose opening quote is at `at`; npos if it has no end.
inline size_t SkipJsonString(std::string_view text, size_t at) {
  size_t quote = at;
  while ((quote = text.find('"', quote + 1)) != std::string_view::npos) {
    size_t before = quote;
    while (text[before - 1] == '\\') --before;
    if ((quote - before) % 2 == 0) return quote + 1;
  }
  return std::string_view::npos;
}

}  // namespace lathe::gateway
