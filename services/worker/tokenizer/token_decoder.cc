#include "services/worker/tokenizer/token_decoder.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/text_pattern.h"
#include "services/worker/tokenizer/unicode.h"

namespace lathe::worker {

absl::Status TokenDecoder::AddStrip(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields({"content", "start", "stop"}));
  Strip strip;
  RETURN_IF_ERROR(component.Character("content").status());
  ASSIGN_OR_RETURN(strip.content, component.String("content"));
  ASSIGN_OR_RETURN(strip.start, component.Count("start"));
  ASSIGN_OR_RETURN(strip.stop, component.Count("stop"));
  if (is_fused_) {
    trims_.push_back(std::move(strip));
  } else {
    steps_.push_back(std::move(strip));
  }
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddMetaspace(const Component& component) {
  RETURN_IF_ERROR(component.CheckFields(
      {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  Metaspace step;
  RETURN_IF_ERROR(component.Character("replacement").status());
  ASSIGN_OR_RETURN(step.replacement, component.String("replacement"));
  ASSIGN_OR_RETURN(const std::string scheme, component.StringOr("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, component.BoolOr("add_prefix_space", true));
  if (scheme != "never" && scheme != "always" && scheme != "first") {
    return component.Wrong("prepend_scheme " + scheme + " is not supported");
  }
  if (scheme != "never" && !add_prefix_space) {
    return component.Wrong("add_prefix_space is false, prepend_scheme " + scheme);
  }
  step.drops_first = scheme != "never";
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status TokenDecoder::Add(const Component& component) {
  const std::string& type = component.type;
  const bool is_of_text = type == "Fuse" || (type == "Strip" && is_fused_);
  // Any other step would see characters that span tokens, or bytes that are not characters.
  if ((is_fused_ || has_bytes_) && !is_of_text) {
    return component.Wrong("is not supported behind the step that joins tokens");
  }
  if (type == "Strip") return AddStrip(component);
  if (type == "Metaspace") return AddMetaspace(component);
  if (type == "Replace") {
    RETURN_IF_ERROR(component.CheckFields({"pattern", "content"}));
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::Read(component));
    ASSIGN_OR_RETURN(std::string content, component.String("content"));
    steps_.push_back(Replace{std::move(pattern), std::move(content)});
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(component.CheckFields({"add_prefix_space", "trim_offsets", "use_regex"}));
    steps_.push_back(ByteLevel{});
    has_bytes_ = is_fused_ = true;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(component.CheckFields({}));
  if (type == "ByteFallback") {
    steps_.push_back(ByteFallback{});
    has_bytes_ = true;
  } else if (type == "Fuse") {
    is_fused_ = true;
  } else {
    return component.NotSupported();
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoder> TokenDecoder::Read(const Json& root) {
  ASSIGN_OR_RETURN(const std::vector<Component> components,
                   ReadComponents(root, "decoder", "decoders"));
  if (components.empty()) return absl::InvalidArgumentError("decoder is missing");
  TokenDecoder decoder;
  for (const Component& component : components) RETURN_IF_ERROR(decoder.Add(component));
  return decoder;
}

void TokenDecoder::Cut(const Strip& strip, std::string& text) {
  std::string_view kept = text;
  for (int64_t i = 0; i < strip.start && kept.starts_with(strip.content); ++i) {
    kept.remove_prefix(strip.content.size());
  }
  for (int64_t i = 0; i < strip.stop && kept.ends_with(strip.content); ++i) {
    kept.remove_suffix(strip.content.size());
  }
  text = std::string(kept);
}

absl::StatusOr<std::string> TokenDecoder::ApplyStep(const Replace& step, std::string token, bool) {
  PatternMatcher matcher(step.pattern);
  return ReplaceAll(matcher, token, step.content);
}

absl::StatusOr<std::string> TokenDecoder::ApplyStep(const Strip& step, std::string token, bool) {
  Cut(step, token);
  return token;
}

absl::StatusOr<std::string> TokenDecoder::ApplyStep(const Metaspace& step, std::string token,
                                                    bool is_first) {
  const TextPattern replacement = TextPattern::FromLiteral(step.replacement);
  PatternMatcher matcher(replacement);
  return ReplaceAll(matcher, token, is_first && step.drops_first ? "" : " ");
}

// Converts a token like "<0x0A>" to its byte. Leaves other tokens alone.
absl::StatusOr<std::string> TokenDecoder::ApplyStep(const ByteFallback&, std::string token, bool) {
  const bool is_hex = token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
                      absl::ascii_isxdigit(token[3]) && absl::ascii_isxdigit(token[4]);
  if (!is_hex) return token;
  return absl::HexStringToBytes(token.substr(3, 2));
}

absl::StatusOr<std::string> TokenDecoder::ApplyStep(const ByteLevel&, std::string token, bool) {
  return FromByteLevel(token);
}

absl::StatusOr<std::string> TokenDecoder::Bytes(std::string token, bool is_first) const {
  for (const Step& step : steps_) {
    auto next = std::visit(
        [&](const auto& kind) { return ApplyStep(kind, std::move(token), is_first); }, step);
    if (!next.ok()) return next;
    token = *std::move(next);
  }
  return token;
}

void TokenDecoder::Trim(std::string& text) const {
  for (const Strip& strip : trims_) Cut(strip, text);
}

}  // namespace lathe::worker
