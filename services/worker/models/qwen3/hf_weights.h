// Weights of a Qwen3 dense model and the names they have in HF folders.
#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <absl/status/statusor.h>

#include "services/worker/models/hf_tensors.h"
#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// Matrices are [out_features, in_features]. Linears that read the same input are stacked, so that
// each is one matrix product over all rows.
struct Qwen3LayerWeights {
  at::Tensor input_norm;  // [H]
  at::Tensor qkv;         // [(Hq + 2 Hk) D, H]: q, k, v
  at::Tensor qkv_bias;    // undefined without attention_bias
  at::Tensor q_norm;      // [D]
  at::Tensor k_norm;      // [D]
  at::Tensor o;           // [H, Hq D]
  at::Tensor o_bias;      // undefined without attention_bias
  at::Tensor post_norm;   // [H]
  at::Tensor gate_up;     // [2 I, H]: gate, up
  at::Tensor down;        // [H, I]
};

struct Qwen3Weights {
  at::Tensor embedding;   // [V, H]
  at::Tensor lm_head;     // [V, H]; the same tensor as `embedding` when tied
  at::Tensor final_norm;  // [H]
  std::vector<Qwen3LayerWeights> layers;
};

// Reads all weights in fp32. bf16 and fp16 widen without rounding, so logits are those of the
// checkpoint's exact values; it costs twice the checkpoint's memory (0.6B: 2.4 GB), which kernels
// that widen in registers will give back.
// InvalidArgument names a tensor that is missing, of another shape, or not understood.
absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelSpec& spec, HfTensors& tensors,
                                              at::Device device);

}  // namespace lathe::worker
