// The interface of a base model for training and sampling: explicit forward and backward steps over
// packed rows. It does not use torch autograd. Every step is a pair of plain functions, so that the
// executor can run other work between two steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/layers/attention_context.h"
#include "services/worker/lora/adapter_weights.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/spec/packed_rows.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Activations that one layer keeps for its backward step; opaque to callers.
struct LayerSaved {
  virtual ~LayerSaved() = default;
};

// A step that ranks of axis fsdp execute together.
struct ModelStep {
  enum class Kind {
    kEmbed,      // Embed
    kForward,    // LayerForward or LayerForwardSaving
    kRecompute,  // LayerRecompute
    kBackward,   // LayerBackward
    kHead,       // Logits or LogitsBackward
  };
  Kind kind = Kind::kEmbed;
  int64_t layer = 0;  // unused by kEmbed and kHead
};

// A base model. Its weights are frozen and shared by all requests. One executor thread uses it.
class Model {
 public:
  virtual ~Model() = default;
  // This rank's part of the model. V in the comments below is part().local.vocab_size.
  virtual const ModelPart& part() const = 0;
  // The whole model, as in its config.
  const DecoderSpec& spec() const { return part().whole; }
  // The tensor-parallel group. All its ranks make the same calls in the same order.
  virtual const RankGroup& tp() const = 0;
  virtual at::Device device() const = 0;
  // Bytes of device memory of all weights.
  virtual int64_t WeightBytes() const = 0;
  // Arithmetic of attention products, and dtype of a KV cache. With bf16 weights on a CPU, this is
  // the arithmetic of products with the weights. With bf16 weights on a GPU it is bf16 if a kernel
  // samples from KV pages; training rounds activations to bf16 then. Otherwise it is fp32.
  virtual MatmulArithmetic attention_arithmetic() const = 0;

  // Begin and end a step. Ranks of axis fsdp hold shares of the weights and unshard them while in
  // use, so they make the calls below in the same order. A rank that may have nothing to compute,
  // or may fail, must at least make the same steps. Between BeginStep and EndStep it makes all
  // calls of `step`, or some of them. EndStep gathers the weights of the other calls. The first
  // weights of `next` are prefetched. Both do nothing if a rank holds whole weights. A failed
  // gather throws RanksDisagree.
  virtual void BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const = 0;
  virtual void EndStep() const = 0;
  // Waits for a gather that began for a dropped pass, because its deadline keeps running. All fsdp
  // ranks call it when there is nothing to compute. It is cheap if no gather is pending.
  virtual void Idle() const {}

  // [T] -> [T, H] in the compute dtype.
  virtual at::Tensor Embed(const PackedRows& rows) const = 0;

  // Inference step of one layer; x [T, H] -> [T, H].
  virtual at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                  AttentionContext& attention) const = 0;

  // Training step of one layer; `saved` receives what LayerBackward needs.
  virtual at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                        std::unique_ptr<LayerSaved>* saved) const = 0;

  // Returns what LayerForwardSaving would save, bit for bit, from the layer's input alone.
  virtual std::unique_ptr<LayerSaved> LayerRecompute(int64_t layer, const at::Tensor& x,
                                                     const PackedRows& rows) const = 0;

  // dL/d(output) [T, H] -> dL/d(input) [T, H]. Adds LoRA gradients (fp32) to
  // gradients[segment.gradient_index]; for factors that several ranks hold, only this rank's share.
  virtual at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                                   std::unique_ptr<LayerSaved> saved,
                                   std::vector<AdapterGradients*>& gradients) const = 0;

  // Final RMS norm, [n, H] -> [n, H], and its backward step; x is the input of the norm.
  virtual at::Tensor FinalNorm(const at::Tensor& x) const = 0;
  virtual at::Tensor FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const = 0;

  // h [n, H] (after FinalNorm) -> logits [n, V] fp32 of this rank's tokens (part().vocabulary);
  // padding is -inf. `segments` cover the n rows.
  virtual at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const = 0;

  // dlogits [n, V] fp32 -> dh [n, H]. Adds the unembedding adapters' gradients. dh is this rank's
  // share: the caller sums it over tp and may sum many rows at once.
  virtual at::Tensor LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                                    const std::vector<Segment>& segments,
                                    std::vector<AdapterGradients*>& gradients) const = 0;
};

}  // namespace lathe::worker
