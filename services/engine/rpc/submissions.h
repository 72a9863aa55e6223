// Requests that become futures: validated messages as events of the core.
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

// Builds a Submit for each message. A message that is invalid but names its place in a sequence
// becomes a Submit with `invalid` set, so that the core can record the place as used; an error is
// returned only when there is no such place. Bodies are added to the runtime (large ones are
// durable on return). Thread-safe.
class SubmissionBuilder {
 public:
  // `runtime` must outlive this. `lora`: of models whose request does not say.
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
  // `reader_tenant_id`: of the weights access token, or empty.
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::LoadWeightsRequest& request,
                               const std::string& reader_tenant_id);
  absl::StatusOr<Submit> Build(const std::string& tenant_id, const v1::SampleRequest& request);

 private:
  Runtime& runtime_;
  const LoraDefaults lora_;
};

// NotFound `unknown_base_model` listing what is served.
absl::StatusOr<BaseModelRow> FindServedModel(Runtime& runtime, const std::string& name);

}  // namespace lathe::engine
