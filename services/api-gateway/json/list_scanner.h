// A large JSON document without its long list: cut out before anything is parsed.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace lathe::gateway {

// Walks over the elements of one list inside `text` by their brackets and strings alone, so that
// each can be parsed by itself: a parser needs several times the memory of what it reads. Whether
// the pieces are JSON is for their parsers to say; of sound pieces the document is sound.
class ListScanner {
 public:
  // The list below the root object's members `names`, one inside the other. Unset when there is
  // none that can be found without parsing (another shape, no JSON, names written with escapes).
  // `text` must outlive it.
  static std::optional<ListScanner> Find(const std::string& text,
                                         std::initializer_list<std::string_view> names);

  // The next element's text, of whatever type; unset after the last, and where the list is broken.
  std::optional<std::string_view> Next();
  // After the last: whether the list ended with its bracket.
  bool is_sound() const { return end_ != std::string::npos; }
  // The document with an empty list in its place. Needs is_sound.
  std::string Rest() const;
  size_t RestBytes() const { return begin_ + text_.size() - end_; }

 private:
  ListScanner(const std::string& text, size_t begin) : text_(text), begin_(begin), at_(begin) {}

  const std::string& text_;
  // Behind the opening bracket.
  size_t begin_;
  size_t at_;
  // Of the closing bracket.
  size_t end_ = std::string::npos;
};

}  // namespace lathe::gateway
