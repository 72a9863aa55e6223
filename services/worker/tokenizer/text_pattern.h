// Search for the strings and regular expressions of tokenizer.json, and their replacement. All use
// of PCRE2 is here.
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

// Translates a regular expression of tokenizer.json to PCRE2 syntax.
//
// Hugging Face compiles patterns with Oniguruma in Ruby syntax. The result has the same meaning in
// PCRE2 with UTF, UCP and MULTILINE. White space and word characters become the Unicode properties
// that Oniguruma uses. InvalidArgument names a construct whose meaning differs or may differ.
absl::StatusOr<std::string> ToPcre2Pattern(std::string_view pattern);

// A literal string or a compiled regex. Immutable, usable from any thread.
class TextPattern {
 public:
  // Reads field "pattern" of `component`: {"String": ...} or {"Regex": ...}.
  static absl::StatusOr<TextPattern> Read(const Component& component);
  static absl::StatusOr<TextPattern> FromRegex(std::string_view regex);
  bool IsOneCharacter() const;                          // true for a literal of one
  static TextPattern FromLiteral(std::string literal);  // must not be empty

 private:
  friend class PatternMatcher;

  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };

  std::string literal_;  // used if `code_` is null
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

// Searches for one pattern, one text after another. Used by one thread; `pattern` must outlive this
// object.
//
// Patterns are untrusted, so the work is limited. An attempt at a position sees a window of the
// text, and may backtrack in proportion to the window's size. The window grows only if the attempt
// reaches its end. The bytes of all larger windows count against a budget linear in the text.
class PatternMatcher {
 public:
  explicit PatternMatcher(const TextPattern& pattern);
  ~PatternMatcher();

  // Sets `matches` to the non-overlapping matches in UTF-8 `text`, from left to right. Includes
  // empty matches, except directly behind another match. InvalidArgument if a limit is exceeded.
  absl::Status FindAll(std::string_view text, std::vector<TextRange>& matches);

 private:
  struct Scratch;

  void FindLiteral(std::string_view text, std::vector<TextRange>& matches) const;
  absl::StatusOr<bool> MatchAt(std::string_view text, size_t start, TextRange& match);
  int MatchOnce(std::string_view window, size_t start, bool is_partial);

  const TextPattern& pattern_;
  size_t budget_ = 0;  // bytes left for windows larger than the first
  std::unique_ptr<Scratch> scratch_;
};

// Maximum size of a text, before and during encoding. Longer texts are rejected.
inline constexpr size_t kMaxTextBytes = 64 << 20;

// Returns InvalidArgument if `num_bytes` exceeds kMaxTextBytes.
absl::Status CheckTextSize(size_t num_bytes);

// Returns `text` with each match replaced by `content`. InvalidArgument if the pattern exceeds its
// work limits or the result exceeds kMaxTextBytes.
absl::StatusOr<std::string> ReplaceAll(PatternMatcher& matcher, std::string_view text,
                                       std::string_view content);

}  // namespace lathe::worker
