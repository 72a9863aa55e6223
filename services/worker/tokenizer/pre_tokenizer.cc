#include "services/worker/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/text_pattern.h"
#include "services/worker/tokenizer/unicode.h"

namespace lathe::worker {

namespace {

struct Section {
  TextRange range;
  bool is_match;
};

// Returns the matches and the text between them, in order. `invert` swaps their roles.
std::vector<Section> Sections(const std::vector<TextRange>& matches, size_t size, bool invert) {
  std::vector<Section> sections;
  sections.reserve(2 * matches.size() + 1);
  size_t end = 0;
  for (const TextRange& match : matches) {
    if (end < match.begin) sections.push_back({{end, match.begin}, invert});
    sections.push_back({match, !invert});
    end = match.end;
  }
  if (end < size) sections.push_back({{end, size}, invert});
  return sections;
}

// Joins a section with the one before it if `joins(section, previous)`.
template <typename Joins>
std::vector<TextRange> Joined(const std::vector<Section>& sections, Joins joins) {
  std::vector<TextRange> pieces;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (i > 0 && joins(sections[i], sections[i - 1])) {
      pieces.back().end = sections[i].range.end;
    } else {
      pieces.push_back(sections[i].range);
    }
  }
  return pieces;
}

std::vector<TextRange> Join(const std::vector<Section>& sections, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return Joined(sections, [](const Section& section, const Section& previous) {
        return section.is_match && !previous.is_match;
      });
    case SplitBehavior::kMergedWithNext:
      return Joined(sections, [](const Section& section, const Section& previous) {
        return !section.is_match && previous.is_match;
      });
    case SplitBehavior::kContiguous:
      return Joined(sections, [](const Section& section, const Section& previous) {
        return section.is_match == previous.is_match;
      });
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  std::vector<TextRange> pieces;
  pieces.reserve(sections.size());
  for (const Section& section : sections) {
    if (behavior == SplitBehavior::kIsolated || !section.is_match) pieces.push_back(section.range);
  }
  return pieces;
}

}  // namespace

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("behavior %s is not supported", std::string(name)));
}

std::vector<TextRange> SplitAt(const std::vector<TextRange>& matches, size_t size,
                               SplitBehavior behavior, bool invert) {
  std::vector<TextRange> pieces = Join(Sections(matches, size, invert), behavior);
  std::erase_if(pieces, [](const TextRange& piece) { return piece.size() == 0; });
  return pieces;
}

namespace {

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Cuts each piece at the matches that `find(piece, matches)` finds in it.
template <typename Find>
absl::Status SplitPieces(PieceList& list, SplitBehavior behavior, bool invert, Find find) {
  std::vector<TextRange> pieces;
  std::vector<TextRange> matches;
  bool begins_first = list.is_first_first;
  for (const TextRange& piece : list.pieces) {
    RETURN_IF_ERROR(find(Part(list.text, piece), matches));
    for (const TextRange& part : SplitAt(matches, piece.size(), behavior, invert)) {
      if (pieces.empty()) begins_first = begins_first && piece.begin + part.begin == 0;
      pieces.push_back({piece.begin + part.begin, piece.begin + part.end});
    }
  }
  list.pieces = std::move(pieces);
  list.is_first_first = begins_first;
  return absl::OkStatus();
}

// Replaces each piece by the text that `rewrite(piece, index, out)` appends to `out`.
template <typename Rewrite>
absl::Status RewritePieces(PieceList& list, Rewrite rewrite) {
  std::string text;
  text.reserve(list.text.size() + list.pieces.size());
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    TextRange& piece = list.pieces[i];
    const size_t begin = text.size();
    rewrite(Part(list.text, piece), i, text);
    piece = {begin, text.size()};
  }
  list.text = std::move(text);
  return CheckTextSize(list.text.size());
}

absl::Status SplitByPattern(PieceList& list, const TextPattern& pattern, SplitBehavior behavior,
                            bool invert) {
  PatternMatcher matcher(pattern);
  return SplitPieces(list, behavior, invert,
                     [&](std::string_view piece, std::vector<TextRange>& matches) {
                       return matcher.FindAll(piece, matches);
                     });
}

absl::Status FindDigits(std::string_view piece, std::vector<TextRange>& matches) {
  matches.clear();
  for (size_t position = 0; position < piece.size();) {
    const size_t begin = position;
    if (IsNumeric(NextCharacter(piece, position))) matches.push_back({begin, position});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadSplit(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields({"pattern", "behavior", "invert"}));
  ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::Read(component));
  ASSIGN_OR_RETURN(const std::string name, component.String("behavior"));
  const auto behavior = ParseSplitBehavior(name);
  if (!behavior.ok()) return component.Wrong(std::string(behavior.status().message()));
  ASSIGN_OR_RETURN(const bool invert, component.Bool("invert"));
  return Step(PatternSplit{std::move(pattern), *behavior, invert});
}

// Ignores trim_offsets, because offsets are not kept.
absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadByteLevel(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields({"add_prefix_space", "trim_offsets", "use_regex"}));
  ByteLevel step;
  ASSIGN_OR_RETURN(step.add_prefix_space, component.Bool("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool use_regex, component.BoolOr("use_regex", true));
  if (use_regex) {
    ASSIGN_OR_RETURN(TextPattern words, TextPattern::FromRegex(kGpt2Words));
    step.words.push_back(std::move(words));
  }
  return Step(std::move(step));
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadMetaspace(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields(
      {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  Metaspace step;
  RETURN_IF_ERROR(component.Character("replacement").status());
  ASSIGN_OR_RETURN(step.replacement, component.String("replacement"));
  ASSIGN_OR_RETURN(step.split, component.BoolOr("split", true));
  ASSIGN_OR_RETURN(const std::string scheme, component.StringOr("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, component.BoolOr("add_prefix_space", true));
  if (scheme == "never") {
    step.prepend_scheme = PrependScheme::kNever;
  } else if (scheme != "always" && scheme != "first") {
    return component.Wrong("prepend_scheme " + scheme + " is not supported");
  } else if (!add_prefix_space) {
    return component.Wrong("add_prefix_space is false, prepend_scheme " + scheme);
  } else {
    step.prepend_scheme = scheme == "first" ? PrependScheme::kFirst : PrependScheme::kAlways;
  }
  return Step(std::move(step));
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadStep(const Component& component) {
  if (component.type == "Split") return ReadSplit(component);
  if (component.type == "ByteLevel") return ReadByteLevel(component);
  if (component.type == "Metaspace") return ReadMetaspace(component);
  if (component.type != "Digits") return component.NotSupported();
  RETURN_IF_ERROR(component.CheckFields({"individual_digits"}));
  ASSIGN_OR_RETURN(const bool individual, component.Bool("individual_digits"));
  return Step(Digits{individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
}

absl::StatusOr<PreTokenizer> PreTokenizer::Read(const Json& root) {
  ASSIGN_OR_RETURN(const std::vector<Component> components,
                   ReadComponents(root, "pre_tokenizer", "pretokenizers"));
  PreTokenizer pre_tokenizer;
  for (const Component& component : components) {
    ASSIGN_OR_RETURN(Step step, ReadStep(component));
    pre_tokenizer.steps_.push_back(std::move(step));
  }
  return pre_tokenizer;
}

absl::Status PreTokenizer::ApplyStep(const PatternSplit& split, PieceList& list) {
  return SplitByPattern(list, split.pattern, split.behavior, split.invert);
}

absl::Status PreTokenizer::ApplyStep(const ByteLevel& byte_level, PieceList& list) {
  if (byte_level.add_prefix_space) {
    RETURN_IF_ERROR(RewritePieces(list, [](std::string_view piece, size_t, std::string& out) {
      if (piece[0] != ' ') out += ' ';
      out += piece;
    }));
  }
  for (const TextPattern& words : byte_level.words) {
    RETURN_IF_ERROR(SplitByPattern(list, words, SplitBehavior::kIsolated, /*invert=*/false));
  }
  return RewritePieces(
      list, [](std::string_view piece, size_t, std::string& out) { AppendByteLevel(piece, out); });
}

absl::Status PreTokenizer::ApplyStep(const Digits& digits, PieceList& list) {
  return SplitPieces(list, digits.behavior, /*invert=*/false, FindDigits);
}

absl::Status PreTokenizer::ApplyStep(const Metaspace& metaspace, PieceList& list) {
  const auto is_prepended = [&](size_t index) {
    return metaspace.prepend_scheme == PrependScheme::kAlways ||
           (metaspace.prepend_scheme == PrependScheme::kFirst && index == 0 && list.is_first_first);
  };
  RETURN_IF_ERROR(RewritePieces(list, [&](std::string_view piece, size_t index, std::string& out) {
    const bool begins_with_it = piece[0] == ' ' || piece.starts_with(metaspace.replacement);
    if (!begins_with_it && is_prepended(index)) out += metaspace.replacement;
    for (const char byte : piece) {
      if (byte == ' ') {
        out += metaspace.replacement;
      } else {
        out += byte;
      }
    }
  }));
  if (!metaspace.split) return absl::OkStatus();
  const TextPattern replacement = TextPattern::FromLiteral(metaspace.replacement);
  return SplitByPattern(list, replacement, SplitBehavior::kMergedWithNext, /*invert=*/false);
}

bool PreTokenizer::AsksForFirst() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* const metaspace = std::get_if<Metaspace>(&step);
    return metaspace != nullptr && metaspace->prepend_scheme == PrependScheme::kFirst;
  });
}

absl::StatusOr<PieceList> PreTokenizer::Apply(std::string text, bool is_first) const {
  const size_t size = text.size();
  PieceList list = {.text = std::move(text), .pieces = {}, .is_first_first = is_first};
  if (size > 0) list.pieces.push_back({0, size});
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(std::visit([&](const auto& kind) { return ApplyStep(kind, list); }, step));
  }
  return list;
}

}  // namespace lathe::worker
