// Weights of a decoder, read from an HF folder as its tables say.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/layers/base_weight.h"
#include "services/worker/layers/fsdp_units.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// This rank's shares of the model's FSDP units: those of the table of linears, then pieces of the
// embedding and of the head.
struct FsdpShares {
  std::unique_ptr<FsdpUnits> units;
  // First units of the embedding and of the head; the pieces have consecutive numbers. Equal if
  // tied.
  int64_t first_of_embedding = 0;
  int64_t first_of_lm_head = 0;
};

// Matrices are [out_features, in_features], with the sizes of ModelPart::local.
struct DecoderWeights {
  std::vector<BaseWeight> embedding;  // [V, H] in pieces of rows; padding rows are zero
  std::vector<BaseWeight> lm_head;    // same form; shares the memory of `embedding` if tied
  std::vector<BaseWeight> stacks;     // by LinearTable::stacks: the linears' rows, stacked
  std::vector<at::Tensor> biases;     // by LinearTable::stacks; undefined if it has none
  std::vector<at::Tensor> vectors;    // by VectorTable::rows
  // Set if matrices are sharded over fsdp: a matrix is valid while its unit is unsharded. If unset,
  // all matrices are always valid, and embedding and head have one piece each.
  std::optional<FsdpShares> shared;
  MatmulArithmetic arithmetic = MatmulArithmetic::kFp32;  // for bf16 matrices on a CPU
};

// Reads `part` of a model from `tensors`, and no other bytes. With several `fsdp` ranks, reads this
// rank's share of the matrices, extended to whole panels of rows. Matrices of a bf16 folder stay
// bf16, in one copy. Matrices of fp32 and fp16 folders become fp32, without rounding. Vectors and
// biases are fp32. Besides the weights and the buffers of FSDP units, memory holds one tensor's
// part at a time; with FSDP only the rows for one unit. InvalidArgument names a tensor that is
// missing, unsupported or of another shape.
absl::StatusOr<DecoderWeights> ReadDecoderWeights(const ModelPart& part, HfTensors& tensors,
                                                  at::Device device, const RankGroup& fsdp = {});

// Reads the tensors of a model one after another and keeps none, for the content hash. Errors as
// ReadDecoderWeights.
absl::Status VisitTensors(const DecoderSpec& spec, HfTensors& tensors);

}  // namespace lathe::worker
