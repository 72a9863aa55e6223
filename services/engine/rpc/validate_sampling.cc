#include "services/engine/rpc/validate_sampling.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/invalid.h"
#include "services/engine/rpc/validate_chunks.h"
#include "services/engine/rpc/validate_scores.h"

namespace lathe::engine {
namespace {

constexpr int64_t kMaxSamples = 1024;
constexpr int kMaxStops = 64;
constexpr size_t kMaxStopStringBytes = 1024;

absl::Status OutOfRange(const char* field, double value, const char* range) {
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s is %g, expected %s", field, value, range));
}

absl::Status CheckNumbers(const v1::SampleRequest& request) {
  const v1::SamplingParams& params = request.params();
  if (request.num_samples() < 1 || request.num_samples() > kMaxSamples) {
    return Invalid(
        "invalid_field", "num_samples",
        absl::StrFormat("num_samples is %d, expected 1 to %d", request.num_samples(), kMaxSamples));
  }
  if (!std::isfinite(params.temperature()) || params.temperature() < 0) {
    return OutOfRange("sampling_params.temperature", params.temperature(),
                      "a finite number of at least 0");
  }
  if (!(params.top_p() > 0 && params.top_p() <= 1)) {
    return OutOfRange("sampling_params.top_p", params.top_p(), "a number in (0, 1]");
  }
  if (!(params.min_p() >= 0 && params.min_p() <= 1)) {
    return OutOfRange("sampling_params.min_p", params.min_p(), "a number in [0, 1]");
  }
  if (params.top_k() != -1 && params.top_k() < 1) {
    return OutOfRange("sampling_params.top_k", static_cast<double>(params.top_k()),
                      "-1 (off) or at least 1");
  }
  if (params.has_max_tokens() && params.max_tokens() < 1) {
    return OutOfRange("sampling_params.max_tokens", static_cast<double>(params.max_tokens()),
                      "at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckNumStops(const char* field, int num_stops, const char* kind) {
  if (num_stops <= kMaxStops) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s has %d %s, limit is %d", field, num_stops, kind, kMaxStops));
}

absl::Status CheckStopStrings(const v1::StopStrings& stop) {
  constexpr char kField[] = "sampling_params.stop";
  RETURN_IF_ERROR(CheckNumStops(kField, stop.values_size(), "strings"));
  for (int i = 0; i < stop.values_size(); ++i) {
    const size_t size = stop.values(i).size();
    if (size == 0 || size > kMaxStopStringBytes) {
      return Invalid("invalid_field", kField,
                     absl::StrFormat("%s[%d] has %d bytes, expected 1 to %d", kField, i, size,
                                     kMaxStopStringBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStopTokens(const v1::StopTokens& stop, const ModelLimits& limits) {
  constexpr char kField[] = "sampling_params.stop";
  RETURN_IF_ERROR(CheckNumStops(kField, stop.values_size(), "tokens"));
  for (int i = 0; i < stop.values_size(); ++i) {
    if (stop.values(i) < 0 || stop.values(i) >= limits.vocab_size) {
      return Invalid("bad_token", kField,
                     absl::StrFormat("%s[%d] is %d, vocabulary size is %d", kField, i,
                                     stop.values(i), limits.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLength(int64_t prompt_tokens, const v1::SamplingParams& params,
                         const ModelLimits& limits) {
  const int64_t max_tokens = params.has_max_tokens() ? params.max_tokens() : 1;
  if (prompt_tokens <= limits.max_context_length &&
      max_tokens <= limits.max_context_length - prompt_tokens) {
    return absl::OkStatus();
  }
  return Invalid("too_long", "prompt",
                 absl::StrFormat("Prompt length plus max_tokens exceeds the model's context "
                                 "window: %d prompt tokens + %d max_tokens > %d.",
                                 prompt_tokens, max_tokens, limits.max_context_length));
}

}  // namespace

absl::StatusOr<int64_t> ValidateSample(const v1::SampleRequest& request,
                                       const ModelLimits& limits) {
  if (!request.unsupported_options().empty()) {
    return Invalid("unsupported_option", request.unsupported_options(0),
                   absl::StrFormat("this server does not offer %s",
                                   absl::StrJoin(request.unsupported_options(), ", ")));
  }
  RETURN_IF_ERROR(CheckNumbers(request));
  ASSIGN_OR_RETURN(const int64_t prompt_tokens,
                   CheckChunks(request.prompt(), limits.vocab_size, "prompt"));
  if (prompt_tokens == 0) return Invalid("empty_prompt", "prompt", "prompt has no tokens");
  RETURN_IF_ERROR(CheckLength(prompt_tokens, request.params(), limits));
  if (request.params().has_stop_strings()) {
    RETURN_IF_ERROR(CheckStopStrings(request.params().stop_strings()));
  }
  if (request.params().has_stop_tokens()) {
    RETURN_IF_ERROR(CheckStopTokens(request.params().stop_tokens(), limits));
  }
  RETURN_IF_ERROR(CheckScores(request, prompt_tokens, limits));
  return prompt_tokens;
}

}  // namespace lathe::engine
