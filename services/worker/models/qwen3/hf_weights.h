// Weights of a Qwen3 dense model and their names in HF folders.
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

// Matrices are [out_features, in_features]. Linears that read the same input are stacked, so that
// each is one matrix product over all rows. Sizes are those of ModelPart::local.
struct Qwen3LayerWeights {
  at::Tensor input_norm;  // [H]
  BaseWeight qkv;         // [(Hq + 2 Hk) D, H]: q, k, v
  at::Tensor qkv_bias;    // undefined without attention_bias
  at::Tensor q_norm;      // [D]
  at::Tensor k_norm;      // [D]
  BaseWeight o;           // [H, Hq D]
  at::Tensor o_bias;      // undefined without attention_bias
  at::Tensor post_norm;   // [H]
  BaseWeight gate_up;     // [2 I, H]: gate, up
  BaseWeight down;        // [H, I]
};

// The FSDP units of a layer, in the order of a forward step.
enum class LayerBlock : int64_t { kAttention, kGateUp, kDown };
inline constexpr int64_t kBlocksPerLayer = 3;

// This rank's shares of the model's FSDP units.
struct Qwen3Blocks {
  std::unique_ptr<FsdpUnits> blocks;
  // First units of the embedding and of the head; the pieces have consecutive numbers. Equal if
  // tied.
  int64_t first_of_embedding = 0;
  int64_t first_of_lm_head = 0;

  static int64_t Of(int64_t layer, LayerBlock block) {
    return layer * kBlocksPerLayer + static_cast<int64_t>(block);
  }
};

struct Qwen3Weights {
  std::vector<BaseWeight> embedding;  // [V, H] in pieces of rows; padding rows are zero
  std::vector<BaseWeight> lm_head;    // same form; shares the memory of `embedding` if tied
  at::Tensor final_norm;              // [H]
  std::vector<Qwen3LayerWeights> layers;
  // Set if matrices are sharded over fsdp: a matrix is valid while its unit is unsharded. If unset,
  // all matrices are always valid, and embedding and head have one piece each.
  std::optional<Qwen3Blocks> shared;
  MatmulArithmetic arithmetic = MatmulArithmetic::kFp32;  // for bf16 matrices on a CPU
};

// Reads `part` of a model from `tensors`, and no other bytes. With several `fsdp` ranks, reads this
// rank's share of the matrices, extended to whole panels of rows. Matrices of a bf16 folder stay
// bf16, in one copy. Matrices of fp32 and fp16 folders become fp32, without rounding. Norms and
// biases are fp32. Besides the weights and the buffers of FSDP units, memory holds one tensor's
// part at a time; with FSDP only the rows for one unit. InvalidArgument names a tensor that is
// missing, unsupported or of another shape.
absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device, const RankGroup& fsdp = {});

}  // namespace lathe::worker
