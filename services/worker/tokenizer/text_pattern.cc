#include "services/worker/tokenizer/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr size_t kFirstWindowBytes = 256;
constexpr size_t kMatchesPerWindowByte = 64;  // limits backtracking
constexpr size_t kMaxMatches = 1'000'000'000;
constexpr size_t kBudgetPerTextByte = 64;
constexpr size_t kMinBudgetBytes = 1 << 20;
constexpr size_t kMaxJitStackBytes = 4 << 20;
constexpr uint32_t kMaxHeapKib = 64 << 10;  // for the interpreter, used without JIT

std::string ErrorText(int code) {
  PCRE2_UCHAR text[128];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct JitStackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

}  // namespace

void TextPattern::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<TextPattern> TextPattern::FromRegex(std::string_view regex) {
  if (regex.empty() || regex.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pattern has %d bytes, expected 1 to %d", regex.size(), kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, ToPcre2Pattern(regex));
  const std::unique_ptr<pcre2_compile_context, CompileContextDeleter> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t position = 0;
  // Anchors at compile time, because JIT code cannot be anchored at match time.
  constexpr uint32_t kOptions =
      PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  TextPattern pattern;
  pattern.code_.reset(pcre2_compile(Bytes(translated), translated.size(), kOptions, &error,
                                    &position, context.get()));
  if (pattern.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pattern cannot be compiled: %s, at byte %d of %s", ErrorText(error),
                        position, translated));
  }
  // If this fails, the interpreter gives the same matches, more slowly.
  pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return pattern;
}

TextPattern TextPattern::FromLiteral(std::string literal) {
  TextPattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

bool TextPattern::IsOneCharacter() const {
  return !literal_.empty() && CharacterBytes(literal_[0]) == literal_.size();
}

absl::StatusOr<TextPattern> TextPattern::Read(const Component& component) {
  const Json& json = *component.json;
  if (!JsonHas(json, "pattern")) return component.Wrong("pattern is missing");
  const Json& field = json.at("pattern");
  if (field.is_object() && field.size() == 1) {
    if (const auto literal = JsonString(field, "String"); literal.ok() && !literal->empty()) {
      return FromLiteral(*literal);
    }
    if (const auto regex = JsonString(field, "Regex"); regex.ok()) {
      auto pattern = FromRegex(*regex);
      if (!pattern.ok()) return component.Wrong(std::string(pattern.status().message()));
      return pattern;
    }
  }
  return component.Wrong("pattern is neither a String that is not empty nor a Regex");
}

struct PatternMatcher::Scratch {
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack;  // null until the default is too small
};

PatternMatcher::PatternMatcher(const TextPattern& pattern)
    : pattern_(pattern), scratch_(std::make_unique<Scratch>()) {
  if (pattern.code_ == nullptr) return;
  scratch_->context.reset(pcre2_match_context_create(nullptr));
  scratch_->data.reset(pcre2_match_data_create(1, nullptr));
  pcre2_set_heap_limit(scratch_->context.get(), kMaxHeapKib);
}

PatternMatcher::~PatternMatcher() = default;

int PatternMatcher::MatchOnce(std::string_view window, size_t start, bool is_partial) {
  Scratch& scratch = *scratch_;
  const uint32_t options = PCRE2_NO_UTF_CHECK | (is_partial ? PCRE2_PARTIAL_HARD : 0);
  const auto match = [&] {
    return pcre2_match(pattern_.code_.get(), Bytes(window), window.size(), start, options,
                       scratch.data.get(), scratch.context.get());
  };
  const int found = match();
  if (found != PCRE2_ERROR_JIT_STACKLIMIT || scratch.stack != nullptr) return found;
  scratch.stack.reset(pcre2_jit_stack_create(32 << 10, kMaxJitStackBytes, nullptr));
  pcre2_jit_stack_assign(scratch.context.get(), nullptr, scratch.stack.get());
  return match();
}

// Returns true, and sets `match`, if there is a match that begins at `start`.
absl::StatusOr<bool> PatternMatcher::MatchAt(std::string_view text, size_t start,
                                             TextRange& match) {
  for (size_t window_bytes = kFirstWindowBytes;; window_bytes *= 4) {
    const size_t end = CharacterBorder(text, start + window_bytes);
    if (window_bytes > kFirstWindowBytes) {
      if (end - start > budget_) break;
      budget_ -= end - start;
    }
    const size_t limit = std::min(kMatchesPerWindowByte * window_bytes, kMaxMatches);
    pcre2_set_match_limit(scratch_->context.get(), static_cast<uint32_t>(limit));
    const int found = MatchOnce(text.substr(0, end), start, /*is_partial=*/end < text.size());
    if (found == PCRE2_ERROR_PARTIAL) continue;
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a pattern of tokenizer.json cannot be matched: ", ErrorText(found)));
    }
    const size_t* const ends = pcre2_get_ovector_pointer(scratch_->data.get());
    match = {ends[0], ends[1]};
    return true;
  }
  return absl::InvalidArgumentError(
      "a pattern of tokenizer.json takes more than linear time on this text");
}

void PatternMatcher::FindLiteral(std::string_view text, std::vector<TextRange>& matches) const {
  const std::string& literal = pattern_.literal_;
  for (size_t found = text.find(literal); found != std::string_view::npos;
       found = text.find(literal, found + literal.size())) {
    matches.push_back({found, found + literal.size()});
  }
}

absl::Status PatternMatcher::FindAll(std::string_view text, std::vector<TextRange>& matches) {
  matches.clear();
  if (pattern_.code_ == nullptr) {
    FindLiteral(text, matches);
    return absl::OkStatus();
  }
  budget_ = kMinBudgetBytes + kBudgetPerTextByte * text.size();
  for (size_t start = 0; start <= text.size();) {
    TextRange match;
    ASSIGN_OR_RETURN(const bool is_match, MatchAt(text, start, match));
    const bool is_empty = is_match && match.size() == 0;
    const bool is_behind_another = !matches.empty() && matches.back().end == start;
    if (is_match && !(is_empty && is_behind_another)) matches.push_back(match);
    if (is_match && !is_empty) {
      start = match.end;
    } else {
      start += start < text.size() ? CharacterBytes(text[start]) : 1;
    }
  }
  return absl::OkStatus();
}

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
