// Stage "decoder" of tokenizer.json: converts tokens to text.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

// Immutable, usable from any thread. In general a decoder works on a list of tokens. The supported
// steps treat each token separately, except at the beginning and the end of the whole text. So each
// token has its own bytes, and a text is their concatenation, trimmed.
class TokenDecoder {
 public:
  // Reads the stage. InvalidArgument names the component that is missing, broken, or not supported
  // at all or at its position.
  static absl::StatusOr<TokenDecoder> Read(const Json& root);

  // Returns the bytes of `token`, which is spelled as in the file. `is_first` is true for the first
  // token of a text. InvalidArgument if a pattern exceeds its work limits.
  absl::StatusOr<std::string> Bytes(std::string token, bool is_first) const;

  // Strips the beginning and the end of a whole text, as the file says.
  void Trim(std::string& text) const;

 private:
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // one character
    int64_t start;        // maximum number removed at the beginning
    int64_t stop;         // and at the end
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;  // removed from a text's first token, otherwise always a space
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

  std::vector<Step> steps_;   // for each token
  std::vector<Strip> trims_;  // for the whole text
  bool has_bytes_ = false;    // true after a step that gives bytes
  bool is_fused_ = false;     // true after a step that joins the tokens
};

}  // namespace lathe::worker
