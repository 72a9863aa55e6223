// Stage "normalizer" of tokenizer.json: changes text before it is cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text_pattern.h"
#include "services/worker/tokenizer/unicode.h"

namespace lathe::worker {

// The steps of the stage, in order. Immutable, usable from any thread.
class TextNormalizer {
 public:
  // Reads the stage. InvalidArgument names the component that is broken or not supported.
  static absl::StatusOr<TextNormalizer> Read(const Json& root);

  // Normalizes UTF-8 `text`. InvalidArgument if a pattern exceeds its work limits or the text
  // becomes too long.
  absl::StatusOr<std::string> Apply(std::string text) const;

  // Returns true if no step can drop the beginning of a text.
  bool KeepsBeginning() const { return keeps_beginning_; }

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  using Step = std::variant<NormalForm, Prepend, Replace, Strip>;

  static bool ReplacesOneCharacter(const Step& step);
  static absl::StatusOr<Step> ReadStep(const Component& component);
  static absl::StatusOr<std::string> ApplyStep(const NormalForm& form, std::string text);
  static absl::StatusOr<std::string> ApplyStep(const Prepend& prepend, std::string text);
  static absl::StatusOr<std::string> ApplyStep(const Replace& replace, std::string text);
  static absl::StatusOr<std::string> ApplyStep(const Strip& strip, std::string text);

  std::vector<Step> steps_;
  bool keeps_beginning_ = true;
};

}  // namespace lathe::worker
