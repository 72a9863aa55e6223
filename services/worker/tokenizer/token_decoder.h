// The stage "decoder" of tokenizer.json: what a token is in text.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

// Immutable, usable from any thread. Decoders work on a list of tokens; those that are supported
// treat each alone, but for what they do at the beginning and the end of the whole text. So a
// token has bytes of its own, and a text is these in a row, trimmed.
class TokenDecoder {
 public:
  // InvalidArgument naming the component that is missing, broken or not supported, where it stands
  // included.
  static absl::StatusOr<TokenDecoder> Read(const Json& root);

  // Bytes of `token`, its spelling in the file, in the middle of a text or as its first token.
  // InvalidArgument when a pattern reaches a bound.
  absl::StatusOr<std::string> Bytes(std::string token, bool is_first) const;

  // Removes what is not shown at the beginning and the end of a whole text.
  void Trim(std::string& text) const;

 private:
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // one character
    int64_t start;        // how many of them at most
    int64_t stop;
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;  // in the first token it is nothing, not a space
  };
  struct ByteFallback {};
  struct ByteLevel {};
  using Step = std::variant<Replace, Strip, Metaspace, ByteFallback, ByteLevel>;

  absl::Status Add(const Component& component);
  absl::Status AddStrip(const Component& component);
  absl::Status AddMetaspace(const Component& component);
  static void Cut(const Strip& strip, std::string& text);
  static absl::StatusOr<std::string> ApplyStep(const Replace& step, std::string token, bool);
  static absl::StatusOr<std::string> ApplyStep(const Strip& step, std::string token, bool);
  static absl::StatusOr<std::string> ApplyStep(const Metaspace& step, std::string token, bool);
  static absl::StatusOr<std::string> ApplyStep(const ByteFallback&, std::string token, bool);
  static absl::StatusOr<std::string> ApplyStep(const ByteLevel&, std::string token, bool);

  std::vector<Step> steps_;   // of each token
  std::vector<Strip> trims_;  // of the text
  bool has_bytes_ = false;    // behind it only the text as a whole may change
  bool is_fused_ = false;     // the steps that follow see the text as a whole
};

}  // namespace lathe::worker
