// The kinds of operations and what differs between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace lathe::engine {

// Values as in lathe.v1.OperationKind. Rows and results hold them.
enum class OperationKind {
  kCreateModel = 1,
  kUnloadModel = 2,
  kForward = 3,
  kForwardBackward = 4,
  kOptimStep = 5,
  kSaveWeights = 6,
  kSaveWeightsForSampler = 7,
  kLoadWeights = 8,
  kSample = 9,
  kSaveWeightsExternal = 10,
};

// Name space of a seq. Requests are keyed by (owner_id, op_class, seq_id).
//   kTrain: the owner is the model.
//   kModel: the owner is the session, and seq is model_seq_id.
//   kSample: the owner is the sampling session.
//   kUnload: the owner is the model, and seq is 0.
enum class OpClass { kTrain = 1, kModel, kSample, kUnload };

struct OperationTraits {
  OperationKind kind;
  std::string_view name;  // in traces and metrics
  OpClass op_class;       // a load that creates its model has kModel instead
  // Batched with others, also of other models.
  bool is_batched = false;
  // Waits for all smaller seqs of its model, and larger ones wait for it. Operations between two
  // barriers commute.
  bool is_barrier = false;
  // The worker encodes the result of a success. The core encodes the other results.
  bool has_worker_result = false;
};

inline constexpr OperationTraits kOperations[] = {
    {.kind = OperationKind::kCreateModel, .name = "create_model", .op_class = OpClass::kModel},
    {.kind = OperationKind::kUnloadModel,
     .name = "unload_model",
     .op_class = OpClass::kUnload,
     .is_barrier = true},
    {.kind = OperationKind::kForward,
     .name = "forward",
     .op_class = OpClass::kTrain,
     .is_batched = true,
     .has_worker_result = true},
    {.kind = OperationKind::kForwardBackward,
     .name = "forward_backward",
     .op_class = OpClass::kTrain,
     .is_batched = true,
     .has_worker_result = true},
    {.kind = OperationKind::kOptimStep,
     .name = "optim_step",
     .op_class = OpClass::kTrain,
     .is_barrier = true,
     .has_worker_result = true},
    {.kind = OperationKind::kSaveWeights,
     .name = "save_weights",
     .op_class = OpClass::kTrain,
     .is_barrier = true},
    {.kind = OperationKind::kSaveWeightsForSampler,
     .name = "save_weights_for_sampler",
     .op_class = OpClass::kTrain,
     .is_barrier = true},
    {.kind = OperationKind::kLoadWeights,
     .name = "load_weights",
     .op_class = OpClass::kTrain,
     .is_barrier = true},
    {.kind = OperationKind::kSample,
     .name = "sample",
     .op_class = OpClass::kSample,
     .has_worker_result = true},
    {.kind = OperationKind::kSaveWeightsExternal,
     .name = "save_weights_external",
     .op_class = OpClass::kTrain,
     .is_barrier = true},
};

constexpr const OperationTraits& TraitsOf(OperationKind kind) {
  return kOperations[static_cast<size_t>(kind) - 1];
}

static_assert(std::ranges::all_of(kOperations, [](const OperationTraits& traits) {
  return &TraitsOf(traits.kind) == &traits;
}));

}  // namespace lathe::engine
