#include "services/engine/runtime/result_encoder.h"

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {
namespace {

void FillOutcome(const MakeResult& result, v1::OperationResult& proto) {
  switch (result.kind) {
    case OperationKind::kCreateModel:
      proto.mutable_create_model()->set_model_id(result.model_id);
      return;
    case OperationKind::kUnloadModel:
      proto.mutable_unload_model()->set_model_id(result.model_id);
      return;
    case OperationKind::kSaveWeights:
      proto.mutable_save_weights()->set_path(result.path);
      return;
    case OperationKind::kSaveWeightsForSampler:
      proto.mutable_save_weights_for_sampler()->set_path(result.path);
      proto.mutable_save_weights_for_sampler()->set_sampling_session_id(result.sampling_session_id);
      return;
    case OperationKind::kSaveWeightsExternal:
      proto.mutable_save_weights_external()->set_path(result.path);
      proto.mutable_save_weights_external()->set_size_bytes(result.size_bytes);
      return;
    case OperationKind::kLoadWeights:
      proto.mutable_load_weights()->set_model_id(result.model_id);
      proto.mutable_load_weights()->set_path(result.path);
      return;
    case OperationKind::kOptimStep:
      proto.mutable_optim_step();
      return;
    case OperationKind::kForward:
    case OperationKind::kForwardBackward:
      proto.mutable_forward_backward();
      return;
    case OperationKind::kSample:
      proto.mutable_sample();
      return;
  }
}

}  // namespace

absl::Status ToStatus(const ErrorInfo& error) {
  return WithRetryAfter(
      WithDetail(absl::Status(error.status, error.message), error.code, error.field),
      absl::Seconds(error.retry_after_seconds));
}

ErrorInfo ToErrorInfo(const absl::Status& status) {
  return {.status = status.code(),
          .code = ErrorCode(status),
          .field = ErrorField(status),
          .message = std::string(status.message())};
}

std::string EncodeResult(const MakeResult& result) {
  v1::OperationResult proto;
  // Both enums have the same numbers.
  proto.set_kind(static_cast<v1::OperationKind>(result.kind));
  if (result.error) {
    *proto.mutable_error() = ToErrorProto(ToStatus(*result.error));
  } else {
    FillOutcome(result, proto);
  }
  return proto.SerializeAsString();
}

}  // namespace lathe::engine
