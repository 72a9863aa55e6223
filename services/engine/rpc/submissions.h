// Conversion of requests that become futures to events of the core.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/core/events.h"
#include "services/engine/rpc/validate_lora.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Builds a Submit for each message. An invalid message with a valid sequence position becomes a
// Submit with `invalid` set, so that the core can record the position as used. A message without a
// position is an error. Adds bodies to the runtime; large ones are durable on return. Thread-safe.
class SubmissionBuilder {
 public:
  // `runtime` must outlive this. `lora` is for models whose request sets no LoRA shape.
  explicit SubmissionBuilder(Runtime& runtime, LoraDefaults lora = {})
      : runtime_(runtime), lora_(std::move(lora)) {}

  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::CreateModelRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::UnloadModelRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id,
                               const v1::ForwardBackwardRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::OptimStepRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::SaveWeightsRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id,
                               const v1::SaveWeightsForSamplerRequest& request);
  absl::StatusOr<Submit> Build(const std::string& tenant_id,
                               const v1::SaveWeightsExternalRequest& request);
  // `reader_tenant_id` is the tenant of the weights access token, or empty.
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::LoadWeightsRequest& request,
                               const std::string& reader_tenant_id);
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::SampleRequest& request);

 private:
  Runtime& runtime_;
  const LoraDefaults lora_;
};

// Returns NotFound `unknown_base_model`, listing the served models, if `name` is not among them.
absl::StatusOr<BaseModelRow> FindServedModel(Runtime& runtime, const std::string& name);

}  // namespace lathe::engine
