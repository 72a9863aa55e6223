#include "services/worker/tokenizer/split.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

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

}  // namespace lathe::worker
