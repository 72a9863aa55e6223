#include "services/engine/rpc/validate_training.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/optimizer/adam_params.h"
#include "libs/common/request_bounds.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/engine/rpc/packed_values.h"
#include "services/engine/rpc/validate_loss.h"
#include "services/engine/rpc/validate_tensor.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

// Bound of the error text that is kept for an unreadable body.
constexpr size_t kMaxMalformedBytes = 1024;

using Inputs = std::map<std::string, const v1::Tensor*>;

// One datum during validation.
struct DatumContext {
  const LossRule& rule;
  const v1::LossSpec& loss;
  const ModelLimits& limits;
  std::string prefix;  // "data[3]"
  int64_t num_tokens = 0;
};

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string InputField(const DatumContext& datum, const std::string& name) {
  return absl::StrFormat("%s.loss_fn_inputs.%s", datum.prefix, name);
}

absl::StatusOr<Inputs> NameInputs(const v1::Datum& proto, const DatumContext& datum) {
  Inputs inputs;
  for (const v1::NamedTensor& input : proto.loss_fn_inputs()) {
    const std::string field = InputField(datum, input.name());
    if (!Contains(datum.rule.required_inputs, input.name()) &&
        !Contains(datum.rule.optional_inputs, input.name())) {
      std::vector<std::string> allowed = datum.rule.required_inputs;
      allowed.insert(allowed.end(), datum.rule.optional_inputs.begin(),
                     datum.rule.optional_inputs.end());
      return Invalid(
          "bad_loss_input", field,
          absl::StrFormat("%s: %s takes %s", field, datum.rule.name, absl::StrJoin(allowed, ", ")));
    }
    if (!inputs.emplace(input.name(), &input.tensor()).second) {
      return Invalid("bad_loss_input", field, absl::StrFormat("%s is given twice", field));
    }
  }
  for (const std::string& name : datum.rule.required_inputs) {
    if (!inputs.contains(name)) {
      const std::string field = InputField(datum, name);
      return Invalid("bad_loss_input", field,
                     absl::StrFormat("%s is missing, %s needs it", field, datum.rule.name));
    }
  }
  return inputs;
}

absl::Status CheckDType(const v1::Tensor& tensor, v1::DType expected, const std::string& field) {
  if (tensor.dtype() == expected) return absl::OkStatus();
  return Invalid("bad_tensor", field,
                 absl::StrFormat("%s: dtype is %s, expected %s", field, DTypeName(tensor.dtype()),
                                 DTypeName(expected)));
}

absl::StatusOr<TensorShape> CheckTargets(const v1::Tensor& targets, const DatumContext& datum) {
  const std::string field = InputField(datum, "target_tokens");
  RETURN_IF_ERROR(CheckDType(targets, v1::DTYPE_INT64, field));
  ASSIGN_OR_RETURN(const TensorShape shape, CheckTensor(targets, field));
  if (shape.is_2d && !datum.rule.takes_2d_targets) {
    return Invalid(
        "bad_loss_input", field,
        absl::StrFormat("%s: shape has two dimensions, %s takes one", field, datum.rule.name));
  }
  if (shape.rows != datum.num_tokens) {
    return Invalid("bad_loss_input", field,
                   absl::StrFormat("%s: length is %d, model_input has %d tokens", field, shape.rows,
                                   datum.num_tokens));
  }
  if (shape.is_2d && (shape.cols < 1 || shape.cols > datum.limits.vocab_size)) {
    return Invalid("bad_loss_input", field,
                   absl::StrFormat("%s: second dimension is %d, expected 1 to %d", field,
                                   shape.cols, datum.limits.vocab_size));
  }
  RETURN_IF_ERROR(CheckTokenValues(targets, datum.limits.vocab_size, field));
  return shape;
}

absl::Status CheckNumbers(const std::string& name, const v1::Tensor& tensor,
                          const TensorShape& targets, const DatumContext& datum) {
  const std::string field = InputField(datum, name);
  RETURN_IF_ERROR(CheckDType(tensor, v1::DTYPE_FLOAT32, field));
  ASSIGN_OR_RETURN(const TensorShape shape, CheckTensor(tensor, field));
  if (!shape.is_2d && !targets.is_2d && shape.rows != targets.rows) {
    return Invalid(
        "bad_loss_input", field,
        absl::StrFormat("%s: length is %d, target_tokens has %d", field, shape.rows, targets.rows));
  }
  if (shape.rows != targets.rows || shape.cols != targets.cols || shape.is_2d != targets.is_2d) {
    return Invalid("bad_loss_input", field,
                   absl::StrFormat("%s: shape is (%d, %d), target_tokens has (%d, %d)", field,
                                   shape.rows, shape.cols, targets.rows, targets.cols));
  }
  return CheckFinite(tensor, field);
}

// Requires kl_coef and reference_logprobs to be given together or not at all.
absl::Status CheckReference(const Inputs& inputs, const DatumContext& datum) {
  const bool has_coef = ConfigValue(datum.loss, kKlCoef).has_value();
  if (has_coef == inputs.contains(kReferenceLogprobs)) return absl::OkStatus();
  const std::string field = InputField(datum, kReferenceLogprobs);
  return Invalid("bad_loss_input", field,
                 has_coef
                     ? absl::StrFormat("%s is missing, %s needs it", field, kKlCoef)
                     : absl::StrFormat("%s is given, loss_fn_config.%s is not", field, kKlCoef));
}

// One bound of the ratio: per token if the datum has it, otherwise from the configuration.
struct ClipBound {
  PackedValues<float> by_token{""};
  std::optional<double> of_all;

  bool is_known() const { return by_token.size() > 0 || of_all.has_value(); }
  double At(int64_t i) const { return by_token.size() > 0 ? by_token[i] : *of_all; }
};

absl::StatusOr<ClipBound> ReadClipBound(const Inputs& inputs, const char* name,
                                        const DatumContext& datum) {
  ClipBound bound;
  bound.of_all = ConfigValue(datum.loss, name);
  const auto input = inputs.find(name);
  if (input == inputs.end()) return bound;
  RETURN_IF_ERROR(CheckAtLeast(*input->second, 0, InputField(datum, name)));
  bound.by_token = PackedValues<float>(input->second->dense());
  return bound;
}

absl::Status CheckClipInputs(const Inputs& inputs, const DatumContext& datum) {
  ASSIGN_OR_RETURN(const ClipBound low, ReadClipBound(inputs, kClipLowThreshold, datum));
  ASSIGN_OR_RETURN(const ClipBound high, ReadClipBound(inputs, kClipHighThreshold, datum));
  if (!low.is_known() || !high.is_known()) return absl::OkStatus();
  for (int64_t i = 0; i < datum.num_tokens; ++i) {
    if (low.At(i) <= high.At(i)) continue;
    const std::string field =
        InputField(datum, low.by_token.size() > 0 ? kClipLowThreshold : kClipHighThreshold);
    return Invalid("bad_loss_input", field,
                   absl::StrFormat("%s: at position %d clip_low_threshold is %g, above "
                                   "clip_high_threshold %g",
                                   field, i, low.At(i), high.At(i)));
  }
  return absl::OkStatus();
}

// Validates the marks of sampled tokens, for losses that need them.
absl::Status CheckSampledTokens(const v1::Datum& proto, const Inputs& inputs,
                                const DatumContext& datum) {
  if (datum.rule.needs_provenance) {
    return CheckProvenance(proto, *inputs.at("advantages"), datum.num_tokens, datum.prefix,
                           datum.rule.name);
  }
  if (!datum.rule.needs_ratio_mask) return absl::OkStatus();
  return CheckRatioMask(*inputs.at(kSequenceRatioMask), *inputs.at("advantages"),
                        InputField(datum, kSequenceRatioMask));
}

absl::Status CheckDatum(const v1::Datum& proto, DatumContext datum) {
  const std::string field = datum.prefix + ".model_input";
  ASSIGN_OR_RETURN(datum.num_tokens,
                   CheckChunks(proto.model_input(), datum.limits.vocab_size, field));
  if (datum.num_tokens == 0) {
    return Invalid("empty_batch", field, absl::StrFormat("%s has no tokens", field));
  }
  if (datum.num_tokens > datum.limits.max_context_length) {
    return Invalid("too_long", field,
                   absl::StrFormat("%s has %d tokens, limit is %d", field, datum.num_tokens,
                                   datum.limits.max_context_length));
  }
  ASSIGN_OR_RETURN(const Inputs inputs, NameInputs(proto, datum));
  ASSIGN_OR_RETURN(const TensorShape targets, CheckTargets(*inputs.at("target_tokens"), datum));
  RETURN_IF_ERROR(CheckReference(inputs, datum));
  for (const auto& [name, tensor] : inputs) {
    if (name == "target_tokens") continue;
    RETURN_IF_ERROR(CheckNumbers(name, *tensor, targets, datum));
  }
  RETURN_IF_ERROR(CheckClipInputs(inputs, datum));
  return CheckSampledTokens(proto, inputs, datum);
}

}  // namespace

absl::Status ValidateForwardBackward(const v1::ForwardBackwardRequest& request,
                                     const ModelLimits& limits) {
  if (!request.malformed().empty()) {
    return Invalid("malformed", "", request.malformed().substr(0, kMaxMalformedBytes));
  }
  ASSIGN_OR_RETURN(const LossRule* const rule, CheckLoss(request.loss()));
  if (request.data().empty()) return Invalid("empty_batch", "data", "data is empty");
  if (request.data_size() > kMaxDatums) {
    return Invalid(
        "too_many_datums", "data",
        absl::StrFormat("data has %d datums, limit is %d", request.data_size(), kMaxDatums));
  }
  for (int i = 0; i < request.data_size(); ++i) {
    const DatumContext datum{.rule = *rule,
                             .loss = request.loss(),
                             .limits = limits,
                             .prefix = absl::StrFormat("data[%d]", i),
                             .num_tokens = 0};
    RETURN_IF_ERROR(CheckDatum(request.data(i), datum));
  }
  return absl::OkStatus();
}

int64_t CountTokens(const v1::ForwardBackwardRequest& request) {
  size_t bytes = 0;
  for (const v1::Datum& datum : request.data()) {
    for (const v1::Chunk& chunk : datum.model_input()) bytes += chunk.tokens().size();
  }
  return static_cast<int64_t>(bytes / sizeof(int32_t));
}

absl::Status ValidateAdam(const v1::AdamParams& adam) {
  for (const AdamField& known : kAdamFields) {
    const auto* from = adam.GetDescriptor()->FindFieldByName(std::string(known.name));
    const double value = adam.GetReflection()->GetDouble(adam, from);
    if (known.range.holds(value)) continue;
    const std::string field = absl::StrCat("adam_params.", AbslView(known.name));
    return Invalid(
        "bad_optimizer", field,
        absl::StrFormat("%s is %g, expected %s", field, value, AbslView(known.range.words)));
  }
  return absl::OkStatus();
}

absl::Status ValidateOptimizerType(const std::string& type) {
  if (type.empty() || type == "adamw") return absl::OkStatus();
  return Invalid("bad_optimizer", "optimizer_config.type",
                 absl::StrFormat("optimizer type is '%s', this server has adamw only", type));
}

}  // namespace lathe::engine
