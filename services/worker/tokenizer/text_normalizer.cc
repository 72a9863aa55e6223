#include "services/worker/tokenizer/text_normalizer.h"

#include <utility>

#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/text_pattern.h"

namespace lathe::worker {

absl::StatusOr<TextNormalizer::Step> TextNormalizer::ReadStep(const Component& component) {
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                {"NFD", NormalForm::kNfd},
                                                                {"NFKC", NormalForm::kNfkc},
                                                                {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (component.type != name) continue;
    RETURN_IF_ERROR(component.CheckFields({}));
    return Step(form);
  }
  if (component.type == "Prepend") {
    RETURN_IF_ERROR(component.CheckFields({"prepend"}));
    ASSIGN_OR_RETURN(std::string text, component.String("prepend"));
    return Step(Prepend{std::move(text)});
  }
  if (component.type == "Replace") {
    RETURN_IF_ERROR(component.CheckFields({"pattern", "content"}));
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::Read(component));
    ASSIGN_OR_RETURN(std::string content, component.String("content"));
    return Step(Replace{std::move(pattern), std::move(content)});
  }
  if (component.type == "Strip") {
    RETURN_IF_ERROR(component.CheckFields({"strip_left", "strip_right"}));
    ASSIGN_OR_RETURN(const bool left, component.Bool("strip_left"));
    ASSIGN_OR_RETURN(const bool right, component.Bool("strip_right"));
    return Step(Strip{left, right});
  }
  return component.NotSupported();
}

bool TextNormalizer::ReplacesOneCharacter(const Step& step) {
  const auto* const replace = std::get_if<Replace>(&step);
  return replace != nullptr && replace->pattern.IsOneCharacter() && !replace->content.empty();
}

absl::StatusOr<TextNormalizer> TextNormalizer::Read(const Json& root) {
  ASSIGN_OR_RETURN(const std::vector<Component> components,
                   ReadComponents(root, "normalizer", "normalizers"));
  TextNormalizer normalizer;
  for (const Component& component : components) {
    ASSIGN_OR_RETURN(Step step, ReadStep(component));
    const bool is_known = std::holds_alternative<NormalForm>(step) ||
                          std::holds_alternative<Prepend>(step) || ReplacesOneCharacter(step);
    normalizer.keeps_beginning_ = normalizer.keeps_beginning_ && is_known;
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

absl::StatusOr<std::string> TextNormalizer::ApplyStep(const NormalForm& form, std::string text) {
  return Normalize(text, form);
}

absl::StatusOr<std::string> TextNormalizer::ApplyStep(const Prepend& prepend, std::string text) {
  if (text.empty()) return text;
  return prepend.text + text;
}

absl::StatusOr<std::string> TextNormalizer::ApplyStep(const Replace& replace, std::string text) {
  PatternMatcher matcher(replace.pattern);
  return ReplaceAll(matcher, text, replace.content);
}

absl::StatusOr<std::string> TextNormalizer::ApplyStep(const Strip& strip, std::string text) {
  TextRange kept = {0, text.size()};
  while (strip.left && kept.size() > 0) {
    size_t next = kept.begin;
    if (!IsWhiteSpace(NextCharacter(text, next))) break;
    kept.begin = next;
  }
  while (strip.right && kept.size() > 0) {
    size_t previous = kept.end;
    if (!IsWhiteSpace(PreviousCharacter(text, previous))) break;
    kept.end = previous;
  }
  return std::string(Part(text, kept));
}

absl::StatusOr<std::string> TextNormalizer::Apply(std::string text) const {
  for (const Step& step : steps_) {
    auto next =
        std::visit([&](const auto& kind) { return ApplyStep(kind, std::move(text)); }, step);
    if (!next.ok()) return next;
    text = *std::move(next);
    RETURN_IF_ERROR(CheckTextSize(text.size()));
  }
  return text;
}

}  // namespace lathe::worker
