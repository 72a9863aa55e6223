#include "services/engine/rpc/validate_loss.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/packed_values.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

namespace {

using Spans = google::protobuf::RepeatedPtrField<v1::ProvenanceSpan>;

absl::Status CheckSpan(const v1::ProvenanceSpan& span, int64_t room, const std::string& field) {
  if (span.sequence_id().empty()) {
    return Invalid("bad_provenance", field, absl::StrFormat("%s: sequence_id is empty", field));
  }
  if (span.offset() < 0) {
    return Invalid("bad_provenance", field,
                   absl::StrFormat("%s: offset is %d, expected at least 0", field, span.offset()));
  }
  if (span.length() < 0 || span.length() > room) {
    return Invalid(
        "bad_provenance", field,
        absl::StrFormat("%s: length is %d, expected 0 to %d", field, span.length(), room));
  }
  return absl::OkStatus();
}

absl::Status CheckTiling(const Spans& spans, int64_t num_tokens, const std::string& field,
                         const std::string& loss) {
  if (spans.empty()) {
    return Invalid("bad_provenance", field,
                   absl::StrFormat("%s is missing, %s needs it", field, loss));
  }
  int64_t covered = 0;
  for (int i = 0; i < spans.size(); ++i) {
    RETURN_IF_ERROR(CheckSpan(spans[i], num_tokens - covered, absl::StrFormat("%s[%d]", field, i)));
    covered += spans[i].length();
  }
  if (covered == num_tokens) return absl::OkStatus();
  return Invalid("bad_provenance", field,
                 absl::StrFormat("%s: lengths sum to %d, expected %d", field, covered, num_tokens));
}

}  // namespace

absl::Status CheckProvenance(const v1::Datum& datum, const v1::Tensor& advantages,
                             int64_t num_tokens, const std::string& prefix,
                             const std::string& loss) {
  RETURN_IF_ERROR(
      CheckTiling(datum.model_input_spans(), num_tokens, prefix + ".model_input_spans", loss));
  RETURN_IF_ERROR(
      CheckTiling(datum.loss_fn_input_spans(), num_tokens, prefix + ".loss_fn_input_spans", loss));
  const PackedValues<float> values(advantages.dense());
  int64_t position = 0;
  for (const v1::ProvenanceSpan& span : datum.loss_fn_input_spans()) {
    for (const int64_t end = position + span.length(); position < end; ++position) {
      if (span.sampled() || values[position] == 0) continue;
      return Invalid("bad_provenance", prefix + ".loss_fn_inputs.advantages",
                     absl::StrFormat("%s.loss_fn_inputs.advantages: value at position %d is %g, "
                                     "but loss_fn_input_spans call the token a prompt's",
                                     prefix, position, values[position]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRatioMask(const v1::Tensor& mask, const v1::Tensor& advantages,
                            const std::string& field) {
  const PackedValues<float> values(mask.dense());
  const PackedValues<float> counts(advantages.dense());
  bool has_token = false;
  bool has_advantage = false;
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0 && values[i] != 1) {
      return Invalid(
          "bad_loss_input", field,
          absl::StrFormat("%s: value at position %d is %g, expected 0 or 1", field, i, values[i]));
    }
    has_token = has_token || values[i] == 1;
    has_advantage = has_advantage || counts[i] != 0;
  }
  if (has_token || !has_advantage) return absl::OkStatus();
  return Invalid("bad_loss_input", field,
                 absl::StrFormat("%s is 0 everywhere: the sequence has no ratio", field));
}

namespace {

std::string AllowedLosses() {
  std::vector<std::string> names;
  for (const LossRule& rule : LossRules()) names.push_back(rule.name);
  return absl::StrJoin(names, ", ");
}

absl::Status UnknownLoss(const std::string& name) {
  // `custom` is the one loss of the SDK that is deliberately unsupported, see docs/api.md.
  const char* const advice =
      name == "custom" ? "; call forward_backward_custom, which runs the loss in your process" : "";
  return Invalid(
      "bad_loss", "loss_fn",
      absl::StrFormat("loss_fn is '%s', allowed are %s%s", name, AllowedLosses(), advice));
}

absl::Status GivenTwice(const std::string& key) {
  const std::string field = "loss_fn_config." + key;
  return Invalid("bad_loss_config", field, absl::StrFormat("%s is given twice", field));
}

const LossOption* FindOption(const LossRule& rule, const std::string& key) {
  const auto option = std::find_if(rule.options.begin(), rule.options.end(),
                                   [&](const LossOption& one) { return one.key == key; });
  return option == rule.options.end() ? nullptr : &*option;
}

absl::Status UnknownKey(const LossRule& rule, const std::string& key) {
  std::vector<std::string> allowed;
  for (const LossOption& option : rule.options) allowed.emplace_back(option.key);
  allowed.push_back(kNormalization);
  return Invalid("bad_loss_config", "loss_fn_config." + key,
                 absl::StrFormat("loss_fn_config has '%s', %s takes %s", key, rule.name,
                                 absl::StrJoin(allowed, ", ")));
}

absl::Status CheckNormalization(const std::string& value) {
  if (value == "none" || value == "tokens" || value == "datums") return absl::OkStatus();
  const std::string field = absl::StrCat("loss_fn_config.", kNormalization);
  return Invalid(
      "bad_loss_config", field,
      absl::StrFormat("%s is '%s', expected none, tokens or datums", field,
                      absl::CHexEscape(absl::string_view(value).substr(0, kMaxShownBytes))));
}

absl::Status CheckTexts(const LossRule& rule, const v1::LossSpec& loss) {
  bool has_normalization = false;
  for (const v1::NamedString& text : loss.text_config()) {
    if (text.name() == kNormalization) {
      if (has_normalization) return GivenTwice(text.name());
      has_normalization = true;
      RETURN_IF_ERROR(CheckNormalization(text.value()));
      continue;
    }
    if (FindOption(rule, text.name()) == nullptr) return UnknownKey(rule, text.name());
    const std::string field = "loss_fn_config." + text.name();
    return Invalid("bad_loss_config", field,
                   absl::StrFormat("%s is '%s', expected a number", field, text.value()));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(const LossOption& option, double value) {
  const bool is_in_range =
      option.excludes_minimum ? value > option.minimum : value >= option.minimum;
  if (std::isfinite(value) && is_in_range) return absl::OkStatus();
  const std::string field = "loss_fn_config." + std::string(option.key);
  return Invalid(
      "bad_loss_config", field,
      absl::StrFormat("%s is %g, expected a finite number %s %g", field, value,
                      option.excludes_minimum ? "above" : "of at least", option.minimum));
}

absl::Status CheckThresholds(const v1::LossSpec& loss) {
  const std::optional<double> low = ConfigValue(loss, kClipLowThreshold);
  const std::optional<double> high = ConfigValue(loss, kClipHighThreshold);
  if (!low || !high || *low <= *high) return absl::OkStatus();
  return Invalid(
      "bad_loss_config", "loss_fn_config.clip_low_threshold",
      absl::StrFormat("clip_low_threshold is %g, above clip_high_threshold %g", *low, *high));
}

}  // namespace

absl::StatusOr<const LossRule*> CheckLoss(const v1::LossSpec& loss) {
  const auto rule = std::find_if(LossRules().begin(), LossRules().end(),
                                 [&](const LossRule& one) { return one.name == loss.name(); });
  if (rule == LossRules().end()) return UnknownLoss(loss.name());
  std::set<std::string> seen;
  for (const v1::NamedNumber& number : loss.config()) {
    if (number.name() == kNormalization) {
      return CheckNormalization(absl::StrFormat("%g", number.value()));
    }
    const LossOption* const option = FindOption(*rule, number.name());
    if (option == nullptr) return UnknownKey(*rule, number.name());
    if (!seen.insert(number.name()).second) return GivenTwice(number.name());
    RETURN_IF_ERROR(CheckNumber(*option, number.value()));
  }
  RETURN_IF_ERROR(CheckTexts(*rule, loss));
  RETURN_IF_ERROR(CheckThresholds(loss));
  return &*rule;
}

std::optional<double> ConfigValue(const v1::LossSpec& loss, const std::string& name) {
  for (const v1::NamedNumber& number : loss.config()) {
    if (number.name() == name) return number.value();
  }
  return std::nullopt;
}

}  // namespace lathe::engine
