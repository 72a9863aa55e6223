#include "services/worker/layers/attention.h"

#include <algorithm>

#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"
#include "services/worker/layers/attention_tasks.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

using Gradients = AttentionBackwardPart::Gradients;

// Positions [begin, end) of the sequence whose first row is `row`.
struct Stretch {
  int64_t row;
  int64_t length;  // of the sequence
  int64_t begin;
  int64_t end;
  Gradients gradients;  // which ones a backward step computes
  int64_t num_pairs;    // pairs of a query and a key: the cost
};

struct Shape {
  int64_t num_kv_heads;
  int64_t group;  // query heads per kv head
  int64_t head_dim;
  int64_t window;

  int64_t ProductsOf(const std::vector<Stretch>& stretches) const {
    int64_t num_pairs = 0;
    for (const Stretch& stretch : stretches) num_pairs += stretch.num_pairs;
    return num_pairs * num_kv_heads * group * head_dim;
  }
};

Shape ShapeOf(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k) {
  return {.num_kv_heads = k.size(1),
          .group = q.size(1) / k.size(1),
          .head_dim = q.size(2),
          .window = spec.window};
}

// Calls add(row, length) for each sequence that has rows.
template <typename F>
void ForSequences(const std::vector<int64_t>& cu_seqlens, const F& add) {
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
    if (length > 0) add(cu_seqlens[s], length);
  }
}

void CostlyFirst(std::vector<Stretch>& stretches) {
  std::stable_sort(stretches.begin(), stretches.end(),
                   [](const Stretch& a, const Stretch& b) { return a.num_pairs > b.num_pairs; });
}

void Cut(int64_t row, int64_t length, int64_t window, int64_t step, Gradients gradients,
         std::vector<Stretch>& stretches) {
  for (int64_t begin = 0; begin < length; begin += step) {
    const int64_t end = std::min(begin + step, length);
    const int64_t seen = NumPairs(end, window) - NumPairs(begin, window);
    // Seen from the end of the sequence, a key's queries are a query's keys.
    const int64_t seen_by = NumPairs(length - begin, window) - NumPairs(length - end, window);
    stretches.push_back({.row = row,
                         .length = length,
                         .begin = begin,
                         .end = end,
                         .gradients = gradients,
                         .num_pairs = gradients == Gradients::kKeys ? seen_by : seen});
  }
}

AttentionOutput ForwardByKernel(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<int64_t>& cu_seqlens,
                                MatmulArithmetic arithmetic) {
  const Shape shape = ShapeOf(spec, q, k);
  const bool is_bf16 = arithmetic == MatmulArithmetic::kBf16;
  const int64_t step = is_bf16 ? AttentionChunkBf16(shape.group) : AttentionChunk(shape.group);
  AttentionOutput output = {.out = at::empty(q.sizes(), q.options()),
                            .log_sums = at::empty({q.size(0), q.size(1), 1}, q.options())};
  std::vector<Stretch> stretches;
  ForSequences(cu_seqlens, [&](int64_t row, int64_t length) {
    Cut(row, length, shape.window, step, Gradients::kQueries, stretches);
  });
  CostlyFirst(stretches);
  const HeadRows q_rows = HeadRowsOf(q);
  const HeadRows k_rows = HeadRowsOf(k);
  const HeadRows v_rows = HeadRowsOf(v);
  const HeadRows out_rows = HeadRowsOf(output.out);
  const HeadRows log_sum_rows = HeadRowsOf(output.log_sums);
  const auto attend = [&](int64_t task, float* scratch) {
    const Stretch& stretch = stretches[static_cast<size_t>(task / shape.num_kv_heads)];
    const int64_t kv_head = task % shape.num_kv_heads;
    const int64_t head = kv_head * shape.group;
    const int64_t row = stretch.row + stretch.begin;
    const AttentionQueries queries = {.q = q_rows.From(row, head),
                                      .out = out_rows.From(row, head),
                                      .log_sums = log_sum_rows.From(row, head),
                                      .first_position = stretch.begin,
                                      .num_positions = stretch.end - stretch.begin,
                                      .group = shape.group,
                                      .head_dim = shape.head_dim,
                                      .scale = static_cast<float>(spec.scale),
                                      .window = spec.window};
    const KeyRows keys = {.keys = k_rows.at(stretch.row, kv_head),
                          .values = v_rows.at(stretch.row, kv_head),
                          .key_stride = k_rows.row_stride,
                          .value_stride = v_rows.row_stride};
    is_bf16 ? AttendBf16(queries, keys, scratch) : Attend(queries, keys, scratch);
  };
  RunTasks(static_cast<int64_t>(stretches.size()) * shape.num_kv_heads, shape.ProductsOf(stretches),
           AttentionScratchSize(step * shape.group, shape.head_dim), attend);
  output.log_sums = output.log_sums.squeeze(2);
  return output;
}

// Returns one stretch per sequence. A sequence that would keep one thread busy after all others are
// done is cut; cutting computes the attention weights once more.
std::vector<Stretch> CutBackward(const std::vector<int64_t>& cu_seqlens, const Shape& shape) {
  constexpr double kPriceOfCutting = 7.0 / 5.0;  // cost of both parts relative to the whole
  constexpr int64_t kCutKeys = 2 * kAttentionKeyBlock;
  const int64_t cut_queries = 2 * AttentionChunk(shape.group);
  int64_t num_pairs = 0;
  ForSequences(cu_seqlens,
               [&](int64_t, int64_t length) { num_pairs += NumPairs(length, shape.window); });
  const double fair_share = static_cast<double>(num_pairs * shape.num_kv_heads) /
                            static_cast<double>(ComputeTeam().num_threads());
  std::vector<Stretch> stretches;
  ForSequences(cu_seqlens, [&](int64_t row, int64_t length) {
    const int64_t window = shape.window;
    if (static_cast<double>(NumPairs(length, window)) <= kPriceOfCutting * fair_share) {
      Cut(row, length, window, length, Gradients::kAll, stretches);
    } else {
      Cut(row, length, window, kCutKeys, Gradients::kKeys, stretches);
      Cut(row, length, window, cut_queries, Gradients::kQueries, stretches);
    }
  });
  CostlyFirst(stretches);
  return stretches;
}

// Returns the sum of out * dout of each head: [T, Hq, 1].
at::Tensor Deltas(const at::Tensor& out, const at::Tensor& dout) {
  at::Tensor deltas = at::empty({out.size(0), out.size(1), 1}, out.options());
  const int64_t num_heads = out.size(1);
  const int64_t head_dim = out.size(2);
  const HeadRows out_rows = HeadRowsOf(out);
  const HeadRows dout_rows = HeadRowsOf(dout);
  const HeadRows delta_rows = HeadRowsOf(deltas);
  ForRows(out.size(0), num_heads * head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < num_heads; ++head) {
        *delta_rows.at(row, head) =
            AttentionDelta(out_rows.at(row, head), dout_rows.at(row, head), head_dim);
      }
    }
  });
  return deltas;
}

AttentionGradients BackwardByKernel(const AttentionSpec& spec, const at::Tensor& q,
                                    const at::Tensor& k, const at::Tensor& v,
                                    const std::vector<int64_t>& cu_seqlens,
                                    const AttentionOutput& output, const at::Tensor& dout,
                                    MatmulArithmetic arithmetic) {
  const Shape shape = ShapeOf(spec, q, k);
  const at::Tensor log_sums = output.log_sums.unsqueeze(2);
  const at::Tensor deltas = Deltas(output.out, dout);
  AttentionGradients d{.dq = at::empty(q.sizes(), q.options()),
                       .dk = at::empty(k.sizes(), k.options()),
                       .dv = at::empty(v.sizes(), v.options())};
  const std::vector<Stretch> stretches = CutBackward(cu_seqlens, shape);
  int64_t longest = 0;
  for (const Stretch& stretch : stretches) longest = std::max(longest, stretch.length);
  const auto attend_backward =
      arithmetic == MatmulArithmetic::kBf16 ? AttendBackwardBf16 : AttendBackward;
  const struct {
    HeadRows q, k, v, dout, log_sums, deltas, dq, dk, dv;
  } rows = {.q = HeadRowsOf(q),
            .k = HeadRowsOf(k),
            .v = HeadRowsOf(v),
            .dout = HeadRowsOf(dout),
            .log_sums = HeadRowsOf(log_sums),
            .deltas = HeadRowsOf(deltas),
            .dq = HeadRowsOf(d.dq),
            .dk = HeadRowsOf(d.dk),
            .dv = HeadRowsOf(d.dv)};
  const auto attend = [&](int64_t task, float* scratch) {
    const Stretch& stretch = stretches[static_cast<size_t>(task / shape.num_kv_heads)];
    const int64_t kv_head = task % shape.num_kv_heads;
    const int64_t head = kv_head * shape.group;
    attend_backward({.q = rows.q.From(stretch.row, head),
                     .k = rows.k.From(stretch.row, kv_head),
                     .v = rows.v.From(stretch.row, kv_head),
                     .dout = rows.dout.From(stretch.row, head),
                     .log_sums = rows.log_sums.From(stretch.row, head),
                     .deltas = rows.deltas.From(stretch.row, head),
                     .dq = rows.dq.From(stretch.row, head),
                     .dk = rows.dk.From(stretch.row, kv_head),
                     .dv = rows.dv.From(stretch.row, kv_head),
                     .num_positions = stretch.length,
                     .group = shape.group,
                     .head_dim = shape.head_dim,
                     .scale = static_cast<float>(spec.scale),
                     .window = spec.window},
                    {stretch.gradients, stretch.begin, stretch.end}, scratch);
  };
  RunTasks(static_cast<int64_t>(stretches.size()) * shape.num_kv_heads, shape.ProductsOf(stretches),
           AttentionBackwardScratchSize(longest * shape.group, shape.head_dim), attend);
  return d;
}

}  // namespace

AttentionOutput CausalAttention(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<int64_t>& cu_seqlens,
                                MatmulArithmetic arithmetic) {
  if (HasCpuRows(q) && HasCpuRows(k) && HasCpuRows(v)) {
    return ForwardByKernel(spec, q, k, v, cu_seqlens, arithmetic);
  }
  if (HasFlashAttention(q, arithmetic)) return CausalAttentionByFlash(spec, q, k, v, cu_seqlens);
  return {.out = CausalAttentionByTorch(spec, q, k, v, cu_seqlens), .log_sums = {}};
}

AttentionGradients CausalAttentionBackward(const AttentionSpec& spec, const at::Tensor& q,
                                           const at::Tensor& k, const at::Tensor& v,
                                           const std::vector<int64_t>& cu_seqlens,
                                           const AttentionOutput& output, const at::Tensor& dout,
                                           MatmulArithmetic arithmetic) {
  if (output.log_sums.defined() && HasCpuRows(dout)) {
    return BackwardByKernel(spec, q, k, v, cu_seqlens, output, dout, arithmetic);
  }
  if (HasFlashAttention(q, arithmetic)) {
    return CausalAttentionBackwardByFlash(spec, q, k, v, cu_seqlens, output, dout);
  }
  return CausalAttentionBackwardByTorch(spec, q, k, v, cu_seqlens, dout);
}

}  // namespace lathe::worker
