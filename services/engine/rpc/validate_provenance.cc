#include "services/engine/rpc/validate_provenance.h"

#include "absl/strings/str_format.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/invalid.h"
#include "services/engine/rpc/packed_values.h"

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

}  // namespace lathe::engine
