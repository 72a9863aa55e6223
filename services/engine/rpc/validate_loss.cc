#include "services/engine/rpc/validate_loss.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/invalid.h"

namespace lathe::engine {
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
