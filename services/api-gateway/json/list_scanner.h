// Walks over JSON text without a parser: splits a large document into the elements of one long list
// and the rest.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
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

// Finds the elements of one list inside `text` by brackets and strings alone. Each element can then
// be parsed separately, because a parser needs several times the memory of its input. The elements
// may be invalid JSON, which their parsers detect. If all elements and Rest() are valid, so is the
// document.
class ListScanner {
 public:
  // Finds the list at the member path `names` below the root object. Unset if there is no list, or
  // if finding it needs a parser (another shape, not JSON, names with escapes). `text` must outlive
  // the scanner.
  static std::optional<ListScanner> Find(const std::string& text,
                                         std::initializer_list<std::string_view> names);

  // Returns the text of the next element, of any type. Unset after the last element and after a
  // syntax error.
  std::optional<std::string_view> Next();
  // Returns true if Next has reached the bracket that ends the list.
  bool is_sound() const { return end_ != std::string::npos; }
  // Returns the document with an empty list in place of this one. Needs is_sound.
  std::string Rest() const;
  // Returns the size of Rest() without building it.
  size_t RestBytes() const { return begin_ + text_.size() - end_; }

 private:
  ListScanner(const std::string& text, size_t begin) : text_(text), begin_(begin), at_(begin) {}

  const std::string& text_;
  // Offset after the opening bracket.
  size_t begin_;
  // Offset at which Next continues; npos after a syntax error.
  size_t at_;
  // Offset of the closing bracket; npos until Next reaches it.
  size_t end_ = std::string::npos;
};

}  // namespace lathe::gateway
