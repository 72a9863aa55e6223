#include "services/engine/runtime/request_words.h"

namespace lathe::engine {

std::string_view WordOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kCreateModel:
      return "create_model";
    case OperationKind::kUnloadModel:
      return "unload_model";
    case OperationKind::kForward:
      return "forward";
    case OperationKind::kForwardBackward:
      return "forward_backward";
    case OperationKind::kOptimStep:
      return "optim_step";
    case OperationKind::kSaveWeights:
      return "save_weights";
    case OperationKind::kSaveWeightsForSampler:
      return "save_weights_for_sampler";
    case OperationKind::kLoadWeights:
      return "load_weights";
    case OperationKind::kSample:
      return "sample";
    case OperationKind::kSaveWeightsExternal:
      return "save_weights_external";
  }
  return "unknown";
}

std::string_view WordOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kUserError:
      return "user_error";
    case Outcome::kServerError:
      return "server_error";
    case Outcome::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace lathe::engine
