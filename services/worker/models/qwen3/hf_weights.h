// Weights of a Qwen3 dense model and the names they have in HF folders.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/aten.h"
#include "services/worker/kernels/cpu/weight_matmul.h"
#include "services/worker/layers/base_weight.h"
#include "services/worker/layers/gathered_blocks.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/models/model_part.h"

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

// The blocks of a layer that ranks keep shares of, in the order in which a forward step holds them.
enum class LayerBlock : int64_t { kAttention, kGateUp, kDown };
inline constexpr int64_t kBlocksPerLayer = 3;

// What ranks that keep shares of the matrices hold of them, block by block.
struct Qwen3Blocks {
  std::unique_ptr<GatheredBlocks> blocks;
  // Of the first pieces; those behind follow. The same when tied.
  int64_t first_of_embedding = 0;
  int64_t first_of_lm_head = 0;

  static int64_t Of(int64_t layer, LayerBlock block) {
    return layer * kBlocksPerLayer + static_cast<int64_t>(block);
  }
};

struct Qwen3Weights {
  std::vector<BaseWeight> embedding;  // [V, H] in pieces of rows; padding holds zero
  std::vector<BaseWeight> lm_head;    // the same; the same memory as `embedding` when tied
  at::Tensor final_norm;              // [H]
  std::vector<Qwen3LayerWeights> layers;
  // Set: a matrix is there while its block is held. Otherwise all are, and pieces are one.
  std::optional<Qwen3Blocks> shared;
  MatmulArithmetic arithmetic = MatmulArithmetic::kFp32;  // of bf16 matrices on a CPU
};

// What a rank holds of a model, as `part` says, reading no more than that; of its matrices, if
// `fsdp` are several, a share, reading the panels of rows that it lies in. Matrices of a bf16
// folder stay bf16, in one copy; those of fp32 and fp16 folders become fp32, which does not round.
// Norms and biases are fp32. Beside the weights themselves and the buffers of blocks, memory holds
// what the rank reads of one tensor of the folder at a time, of a tensor in blocks only what it
// reads for one of them. InvalidArgument names a tensor that is missing, of another
// shape, or not understood.
absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device, const RankGroup& fsdp = {});

}  // namespace lathe::worker
