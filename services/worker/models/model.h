// What training and sampling need of a base model: explicit forward and backward steps over packed
// rows. No torch autograd: every step is a pair of plain functions, so that the executor can run
// other work between any two of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/kernels/cpu/weight_matmul.h"
#include "services/worker/lora/adapter_weights.h"
#include "services/worker/models/model_part.h"

namespace lathe::worker {

class LoraSlots;

// Rows [begin, end) of the packed batch use `adapter`; nullptr is the base model.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  const AdapterWeights* adapter = nullptr;
  // Into the caller's list of AdapterGradients. -1: none wanted, and dL/dy of these rows is zero.
  int64_t gradient_index = -1;
  // Of decode passes on a GPU, in place of `adapter`: every row names its own. It is then the only
  // segment.
  const LoraSlots* slots = nullptr;
};

// Sequences laid end to end, without padding.
struct PackedRows {
  at::Tensor tokens;                // [T] int64
  at::Tensor positions;             // [T] int64, place in the own sequence
  std::vector<int64_t> cu_seqlens;  // [S + 1]; rows of sequence s are [cu[s], cu[s+1])
  std::vector<Segment> segments;    // cover [0, T) in order
};

struct QkHeads;
struct QkNormWeights;
class RopeTable;

// How attention reads keys and values: packed sequences (training) or a KV cache (sampling).
class AttentionContext {
 public:
  virtual ~AttentionContext() = default;
  // Of queries and keys that are still to be normed and rotated (NormRope of layers/qk_norm.h):
  //   heads  q [T, Hq, D], k [T, Hk, D];  v [T, Hk, D];  positions [T] int64
  //   returns [T, Hq, D]
  // Causal per sequence.
  virtual at::Tensor NormRopeAttend(int64_t layer, const QkHeads& heads, const at::Tensor& v,
                                    const QkNormWeights& weights, const RopeTable& rope,
                                    const at::Tensor& positions) = 0;
};

// Activations one layer keeps for its backward step; opaque to callers.
struct LayerSaved {
  virtual ~LayerSaved() = default;
};

// What ranks that share weights do together.
struct ModelStep {
  enum class Kind {
    kEmbed,      // Embed
    kForward,    // LayerForward or LayerForwardSaving
    kRecompute,  // LayerRecompute
    kBackward,   // LayerBackward
    kHead,       // Logits or LogitsBackward
  };
  Kind kind = Kind::kEmbed;
  int64_t layer = 0;  // of the three in the middle
};

// A base model. Weights are frozen and shared by everyone; one executor thread uses it.
class Model {
 public:
  virtual ~Model() = default;
  // What this rank holds of it. Where a comment below says V, it is local.vocab_size.
  virtual const ModelPart& part() const = 0;
  // The model as users know it.
  const ModelSpec& spec() const { return part().whole; }
  // Who hold the other parts: they make the same calls, in the same order.
  virtual const RankGroup& tp() const = 0;
  virtual at::Device device() const = 0;
  // Of all weights, as they lie in the device's memory.
  virtual int64_t WeightBytes() const = 0;
  // Of the products of attention, and so of what a KV cache holds. bf16 on a CPU: where products
  // with the weights are. bf16 on a GPU: only while sampling, in pages; training's attention is
  // fp32.
  virtual MatmulArithmetic attention_arithmetic() const = 0;

  // Ranks of axis fsdp keep shares of the weights, and gather what they use while they use it. So
  // they make the same calls below in the same order, or, where one may have nothing to compute or
  // may fail, the same steps: between these two each makes the calls of `step`, or fewer, and
  // EndStep does for the others what it has not. `next` is begun to be gathered. Where a rank has
  // whole weights both do nothing. Whatever gathers throws RanksDisagree.
  virtual void BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const = 0;
  virtual void EndStep() const = 0;
  // There is nothing to do for now: what was begun to be gathered, for a pass that was dropped, is
  // waited for, as its deadline goes on. By all these ranks; a call that does nothing is cheap.
  virtual void Rest() const {}

  // [T] -> [T, H] in the compute dtype.
  virtual at::Tensor Embed(const PackedRows& rows) const = 0;

  // Inference step of one layer; x [T, H] -> [T, H].
  virtual at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                  AttentionContext& attention) const = 0;

  // Training step of one layer; `saved` receives what LayerBackward needs.
  virtual at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                        std::unique_ptr<LayerSaved>* saved) const = 0;

  // What LayerForwardSaving would have saved, bit for bit, from the layer's input alone.
  virtual std::unique_ptr<LayerSaved> LayerRecompute(int64_t layer, const at::Tensor& x,
                                                     const PackedRows& rows) const = 0;

  // dL/d(output) [T, H] -> dL/d(input) [T, H]; adds LoRA gradients (fp32) to
  // gradients[segment.gradient_index]: this rank's share of factors that several hold.
  virtual at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                                   std::unique_ptr<LayerSaved> saved,
                                   std::vector<AdapterGradients*>& gradients) const = 0;

  // Final RMS norm, [n, H] -> [n, H], and its backward (x is the norm's input).
  virtual at::Tensor FinalNorm(const at::Tensor& x) const = 0;
  virtual at::Tensor FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const = 0;

  // h [n, H] (after FinalNorm) -> logits [n, V] fp32, those of this rank's tokens
  // (part().vocabulary) and -inf for its padding. `segments` cover the n rows.
  virtual at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const = 0;

  // dlogits [n, V] fp32 -> dh [n, H]; adds the unembedding adapters' gradients. dh is this rank's
  // share: who calls it sums over tp, once for as many rows as it likes.
  virtual at::Tensor LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                                    const std::vector<Segment>& segments,
                                    std::vector<AdapterGradients*>& gradients) const = 0;
};

}  // namespace lathe::worker
