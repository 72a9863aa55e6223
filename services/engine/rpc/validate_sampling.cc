#include "services/engine/rpc/validate_sampling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/packed_values.h"
#include "services/engine/rpc/validate_tensor.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

namespace {

// The worker's cost of a row hardly grows with k. The bound is a plausible need of clients.
constexpr int64_t kMaxTopk = 128;
// Bound of the numbers of one kind in a result: 64 MiB if each has a token id.
constexpr int64_t kMaxScores = int64_t{1} << 23;
constexpr char kTargets[] = "target_prompt_logprobs";
constexpr char kLastN[] = "prompt_logprobs_last_n";

absl::Status CheckWidth(const char* field, int64_t k) {
  if (k >= 0 && k <= kMaxTopk) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s is %d, expected 0 to %d", field, k, kMaxTopk));
}

// Bounds `rows` times `columns`, which `what` describes. Both are small enough for a product.
absl::Status CheckCount(const char* field, int64_t rows, int64_t columns, const char* what) {
  if (columns == 0 || rows <= kMaxScores / columns) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s asks for %d logprobs (%s), limit is %d", field, rows * columns,
                                 what, kMaxScores));
}

absl::Status CheckSampleTopk(const v1::SampleRequest& request, int64_t prompt_tokens,
                             const ModelLimits& limits) {
  const v1::SamplingParams& params = request.params();
  const int64_t max_tokens =
      params.has_max_tokens() ? params.max_tokens() : limits.max_context_length - prompt_tokens;
  return CheckCount("topk_sample_logprobs", request.num_samples() * max_tokens,
                    request.topk_sample_logprobs(), "num_samples * max_tokens * k");
}

absl::Status CheckLastN(const v1::SampleRequest& request, int64_t prompt_tokens) {
  if (!request.has_prompt_logprobs_last_n()) return absl::OkStatus();
  const int64_t last_n = request.prompt_logprobs_last_n();
  if (!request.prompt_logprobs()) {
    return Invalid("invalid_field", kLastN,
                   absl::StrFormat("%s is %d, but prompt_logprobs is false", kLastN, last_n));
  }
  if (last_n < 1 || last_n > prompt_tokens - 1) {
    return Invalid("invalid_field", kLastN,
                   absl::StrFormat("%s is %d, expected 1 to %d: the prompt has %d tokens, its "
                                   "first is never scored",
                                   kLastN, last_n, prompt_tokens - 1, prompt_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckTargetIds(const v1::Tensor& tensor, int64_t vocab_size) {
  const PackedValues<int64_t> ids(tensor.has_sparse_csr() ? tensor.sparse_csr().values()
                                                          : tensor.dense());
  bool names_one = false;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < -1 || ids[i] >= vocab_size) {
      return Invalid("bad_token", kTargets,
                     absl::StrFormat("%s: token at position %d is %d, expected -1 or one below the "
                                     "vocabulary size of %d",
                                     kTargets, i, ids[i], vocab_size));
    }
    names_one = names_one || ids[i] >= 0;
  }
  if (names_one) return absl::OkStatus();
  return Invalid("invalid_field", kTargets,
                 absl::StrFormat("%s names no token id in %d cells, expected at least 1", kTargets,
                                 ids.size()));
}

absl::Status CheckTargets(const v1::Tensor& tensor, int64_t prompt_tokens, int64_t vocab_size) {
  if (tensor.dtype() != v1::DTYPE_INT64) {
    return Invalid(
        "bad_tensor", kTargets,
        absl::StrFormat("%s: dtype is %s, expected int64", kTargets, DTypeName(tensor.dtype())));
  }
  ASSIGN_OR_RETURN(const TensorShape shape, CheckTensor(tensor, kTargets));
  if (!shape.is_2d || shape.rows != prompt_tokens - 1) {
    return Invalid("bad_tensor", kTargets,
                   absl::StrFormat("%s has %d rows in %d dimensions, expected %d rows in 2: one "
                                   "for each prompt token after the first",
                                   kTargets, shape.rows, shape.is_2d ? 2 : 1, prompt_tokens - 1));
  }
  const auto num_cells = static_cast<int64_t>(
      (tensor.has_sparse_csr() ? tensor.sparse_csr().values() : tensor.dense()).size() /
      sizeof(int64_t));
  RETURN_IF_ERROR(CheckCount(kTargets, num_cells, 1, "its cells"));
  return CheckTargetIds(tensor, vocab_size);
}

}  // namespace

absl::Status CheckScores(const v1::SampleRequest& request, int64_t prompt_tokens,
                         const ModelLimits& limits) {
  const int64_t prompt_k = request.topk_prompt_logprobs();
  const int64_t alt_k = request.prompt_alt_tokens_k();
  RETURN_IF_ERROR(CheckWidth("topk_prompt_logprobs", prompt_k));
  RETURN_IF_ERROR(CheckWidth("topk_sample_logprobs", request.topk_sample_logprobs()));
  RETURN_IF_ERROR(CheckWidth("prompt_alt_tokens_k", alt_k));
  RETURN_IF_ERROR(CheckCount("topk_prompt_logprobs", prompt_tokens, prompt_k, "prompt tokens * k"));
  RETURN_IF_ERROR(CheckCount("prompt_alt_tokens_k", prompt_tokens, alt_k, "prompt tokens * k"));
  RETURN_IF_ERROR(CheckSampleTopk(request, prompt_tokens, limits));
  RETURN_IF_ERROR(CheckLastN(request, prompt_tokens));
  if (!request.has_target_prompt_logprobs()) return absl::OkStatus();
  return CheckTargets(request.target_prompt_logprobs(), prompt_tokens, limits.vocab_size);
}

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
