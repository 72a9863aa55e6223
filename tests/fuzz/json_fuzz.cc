// Fuzzes all JSON requests, and the engine's checks of the large ones.
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/sampling_json.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/json/training_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/engine/rpc/validate_sampling.h"
#include "services/engine/rpc/validate_training.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace lathe::gateway;  // NOLINT: a fuzz target is all about it

constexpr lathe::engine::ModelLimits kLimits{
    .max_context_length = 64, .vocab_size = 768, .max_lora_rank = 512};

void ReadSmall(const std::string& text) {
  const absl::StatusOr<Json> body = ParseJsonBody(text);
  lathe::fuzz::Expect(body.ok() == ExplainBadJson(text).ok(), "both parses agree");
  if (!body.ok()) return;
  CreateSessionFromJson(*body).IgnoreError();
  HeartbeatFromJson(*body).IgnoreError();
  FinishSessionFromJson(*body, "s").IgnoreError();
  CreateModelFromJson(*body).IgnoreError();
  UnloadModelFromJson(*body).IgnoreError();
  GetInfoFromJson(*body).IgnoreError();
  OptimStepFromJson(*body).IgnoreError();
  SaveWeightsFromJson(*body).IgnoreError();
  SaveWeightsForSamplerFromJson(*body).IgnoreError();
  LoadWeightsFromJson(*body).IgnoreError();
  WeightsInfoFromJson(*body).IgnoreError();
  SetTtlFromJson(*body, "p").IgnoreError();
  CreateSamplingSessionFromJson(*body).IgnoreError();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lathe::fuzz::Text(data, size);
  ReadSmall(text);
  const auto sample = SampleFromJson(text);
  if (sample.ok()) lathe::engine::ValidateSample(*sample, kLimits).IgnoreError();
  for (const bool forward_only : {false, true}) {
    lathe::v1::ForwardBackwardRequest request;
    if (!ForwardBackwardFromJson(text, forward_only, &request).ok()) continue;
    lathe::engine::ValidateForwardBackward(request, kLimits).IgnoreError();
  }
  return 0;
}
