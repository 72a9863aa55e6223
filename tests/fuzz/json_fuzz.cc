// Fuzzes all JSON requests, and the engine's checks of the large ones.
#include "libs/common/errors.h"
#include "services/api-gateway/json/accounts_json.h"
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/json/sampling_json.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/json/training_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/engine/rpc/validate_sampling.h"
#include "services/engine/rpc/validate_training.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace lathe::gateway;  // NOLINT: a fuzz target is all about it

constexpr lathe::engine::ModelLimits kLimits{.max_context_length = 64, .vocab_size = 768};

void ReadSmall(const std::string& text) {
  simdjson::dom::parser parser;
  const bool is_json = CheckJson(text).ok();
  lathe::fuzz::Expect(!is_json || ParseLargeJson(parser, text).ok(), "both parsers agree");
  ReadBody(text, kCreateSession).IgnoreError();
  ReadBody(text, kHeartbeat).IgnoreError();
  ReadBody(text, kFinishSession).IgnoreError();
  ReadBody(text, kCreateModel).IgnoreError();
  ReadBody(text, kUnloadModel).IgnoreError();
  ReadBody(text, kGetInfo).IgnoreError();
  ReadBody(text, kOptimStep).IgnoreError();
  ReadBody(text, kSaveWeights).IgnoreError();
  ReadBody(text, kSaveWeightsForSampler).IgnoreError();
  ReadBody(text, kLoadWeights).IgnoreError();
  ReadBody(text, kWeightsInfo).IgnoreError();
  ReadBody(text, kSetTtl).IgnoreError();
  ReadBody(text, kCreateSamplingSession).IgnoreError();
  ReadBody(text, kSearchSessions).IgnoreError();
  ReadBody(text, kAwaitSamples).IgnoreError();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lathe::fuzz::Text(data, size);
  ReadSmall(text);
  const auto sample = SampleFromJson(text);
  // Duplicate keys are found only among a body's known members.
  const absl::Status whole = CheckJson(text);
  const bool may_be_read = whole.ok() || lathe::ErrorCode(whole) == "duplicate_key";
  lathe::fuzz::Expect(!sample.ok() || may_be_read, "a body that is read is JSON");
  if (sample.ok()) lathe::engine::ValidateSample(*sample, kLimits).IgnoreError();
  for (const bool forward_only : {false, true}) {
    lathe::v1::ForwardBackwardRequest request;
    if (!ForwardBackwardFromJson(text, forward_only, &request).ok()) continue;
    lathe::engine::ValidateForwardBackward(request, kLimits).IgnoreError();
  }
  return 0;
}
