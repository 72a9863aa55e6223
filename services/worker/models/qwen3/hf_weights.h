// Weights of a Qwen3 dense model and the names they have in HF folders.
#pragma once

#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <absl/status/statusor.h>

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

struct Qwen3Weights {
  BaseWeight embedding;   // [V, H]; padding holds zero
  BaseWeight lm_head;     // [V, H]; the same memory as `embedding` when tied
  at::Tensor final_norm;  // [H]
  std::vector<Qwen3LayerWeights> layers;
  // Of ranks that keep shares of the layers: a block of each layer's matrices, which are there
  // while it is held. Null: each layer is whole.
  std::unique_ptr<GatheredBlocks> blocks;
  MatmulArithmetic arithmetic = MatmulArithmetic::kFp32;  // of bf16 matrices on a CPU
};

// What a rank holds of a model, as `part` says, reading no more than that; of the layers, if `fsdp`
// are several, its share. Matrices of a
// bf16 folder stay bf16, in one copy; those of fp32 and fp16 folders become fp32, which does not
// round. Norms and biases are fp32. Beside the weights themselves, memory holds the rank's part of
// one tensor of the folder at a time. InvalidArgument names a tensor that is missing, of another
// shape, or not understood.
absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device, const RankGroup& fsdp = {});

}  // namespace lathe::worker
