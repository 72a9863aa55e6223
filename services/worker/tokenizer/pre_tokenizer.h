// Stage "pre_tokenizer" of tokenizer.json: cuts text into pieces that the model encodes separately.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

// Treatment of a match, in order: dropped, a piece by itself, merged with the text before it,
// merged with the text behind it, merged with adjacent matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Returns the pieces of a text of `size` bytes with these matches, in order and not empty. `invert`
// swaps the roles of the matches and the text between them.
std::vector<TextRange> SplitAt(const std::vector<TextRange>& matches, size_t size,
                               SplitBehavior behavior, bool invert);

struct PieceList {
  std::string text;
  std::vector<TextRange> pieces;  // ranges of `text`, in order, not empty
  bool is_first_first = false;    // true if the first piece begins the caller's text
};

// The steps of the stage, in order. Immutable, usable from any thread.
class PreTokenizer {
 public:
  // Reads the stage. InvalidArgument names the component that is broken or not supported.
  static absl::StatusOr<PreTokenizer> Read(const Json& root);

  // Cuts UTF-8 `text`. `is_first` is true if it begins the caller's text. InvalidArgument if a
  // pattern exceeds its work limits.
  absl::StatusOr<PieceList> Apply(std::string text, bool is_first) const;

  // Returns true if the result of Apply depends on `is_first`.
  bool AsksForFirst() const;

 private:
  struct PatternSplit {
    TextPattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    std::vector<TextPattern> words;  // GPT-2's pattern, or empty
  };
  struct Digits {
    SplitBehavior behavior;
  };
  enum class PrependScheme { kAlways, kFirst, kNever };
  struct Metaspace {
    std::string replacement;
    PrependScheme prepend_scheme;
    bool split;
  };
  using Step = std::variant<PatternSplit, ByteLevel, Digits, Metaspace>;

  static absl::StatusOr<Step> ReadStep(const Component& component);
  static absl::StatusOr<Step> ReadSplit(const Component& component);
  static absl::StatusOr<Step> ReadByteLevel(const Component& component);
  static absl::StatusOr<Step> ReadMetaspace(const Component& component);
  static absl::Status ApplyStep(const PatternSplit& split, PieceList& list);
  static absl::Status ApplyStep(const ByteLevel& byte_level, PieceList& list);
  static absl::Status ApplyStep(const Digits& digits, PieceList& list);
  static absl::Status ApplyStep(const Metaspace& metaspace, PieceList& list);

  std::vector<Step> steps_;
};

}  // namespace lathe::worker
