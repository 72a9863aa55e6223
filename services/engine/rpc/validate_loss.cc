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

constexpr size_t kMaxShownBytes = 128;

std::string AllowedLosses() {
  std::vector<std::string> names;
  for (const LossRule& rule : LossRules()) names.push_back(rule.name);
  return absl::StrJoin(names, ", ");
}

absl::Status UnknownLoss(const std::string& name) {
  // The one loss of the SDK that is left out on purpose: see docs/api.md.
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

absl::Status UnknownKey(const LossRule& rule, const std::string& key) {
  return Invalid("bad_loss_config", "loss_fn_config." + key,
                 absl::StrFormat("loss_fn_config has '%s', %s takes %s, %s", key, rule.name,
                                 absl::StrJoin(rule.config, ", "), kNormalization));
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
    const bool is_number =
        std::find(rule.config.begin(), rule.config.end(), text.name()) != rule.config.end();
    if (!is_number) return UnknownKey(rule, text.name());
    const std::string field = "loss_fn_config." + text.name();
    return Invalid("bad_loss_config", field,
                   absl::StrFormat("%s is '%s', expected a number", field, text.value()));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(const v1::NamedNumber& number) {
  const std::string field = "loss_fn_config." + number.name();
  const double value = number.value();
  if (number.name() == kDualClipThreshold) {
    if (std::isfinite(value) && value > 1) return absl::OkStatus();
    return Invalid("bad_loss_config", field,
                   absl::StrFormat("%s is %g, expected a finite number above 1", field, value));
  }
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Invalid("bad_loss_config", field,
                 absl::StrFormat("%s is %g, expected a finite number of at least 0", field, value));
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
    if (std::find(rule->config.begin(), rule->config.end(), number.name()) == rule->config.end()) {
      return UnknownKey(*rule, number.name());
    }
    if (!seen.insert(number.name()).second) return GivenTwice(number.name());
    RETURN_IF_ERROR(CheckNumber(number));
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
