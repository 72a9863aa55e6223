// Strings and regular expressions that tokenizer.json searches text for; the only use of PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/text.h"

struct pcre2_real_code_8;

namespace lathe::worker {

// Immutable, usable from any thread.
class TextPattern {
 public:
  // Field "pattern" of `component`: {"String": ...} or {"Regex": ...}.
  static absl::StatusOr<TextPattern> Read(const Component& component);
  static absl::StatusOr<TextPattern> FromRegex(std::string_view regex);
  bool IsOneCharacter() const;                          // a String of one
  static TextPattern FromLiteral(std::string literal);  // must not be empty

 private:
  friend class PatternMatcher;

  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };

  std::string literal_;  // searched for when there is no code
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

// Searches for one pattern, one text after another. For one thread; `pattern` must outlive it.
//
// Patterns are untrusted, so the work is bounded: an attempt at a position sees a window of the
// text that grows only while the attempt reaches its end, may backtrack in proportion to it, and
// what larger windows hold is paid from a budget that is linear in the text.
class PatternMatcher {
 public:
  explicit PatternMatcher(const TextPattern& pattern);
  ~PatternMatcher();

  // Replaces `matches` by the matches in UTF-8 `text`, from left to right, not overlapping; empty
  // ones too, but not right behind another. InvalidArgument when a bound is reached.
  absl::Status FindAll(std::string_view text, std::vector<TextRange>& matches);

 private:
  struct Scratch;

  void FindLiteral(std::string_view text, std::vector<TextRange>& matches) const;
  absl::StatusOr<bool> MatchAt(std::string_view text, size_t start, TextRange& match);
  int MatchOnce(std::string_view window, size_t start, bool is_partial);

  const TextPattern& pattern_;
  size_t budget_ = 0;  // bytes that windows above the first may still show
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace lathe::worker
