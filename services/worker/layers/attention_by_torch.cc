#include "services/worker/layers/attention.h"

#include <algorithm>
#include <limits>

// Legend: s sequences of one run, n positions of each, h key/value heads, g query heads per
// key/value head, d head size; t a tile of queries, m the keys it can see. One batch entry of a
// matrix product is a (sequence, key/value head) pair; its query heads are stacked along rows.
namespace lathe::worker {
namespace {

// Query rows per sequence in one tile; bounds the memory of a tile's scores.
constexpr int64_t kTileRows = 256;

// Neighbouring sequences of equal length.
struct Run {
  int64_t begin = 0;  // first row
  int64_t num_sequences = 0;
  int64_t length = 0;
};

std::vector<Run> FindRuns(const std::vector<int64_t>& cu_seqlens) {
  std::vector<Run> runs;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
    if (length == 0) continue;
    if (runs.empty() || runs.back().length != length) {
      runs.push_back({.begin = cu_seqlens[s], .num_sequences = 0, .length = length});
    }
    ++runs.back().num_sequences;
  }
  return runs;
}

// Returns the rows of `run` in x [T, h·g, d] as a view [s, h, g, n, d].
at::Tensor Heads(const at::Tensor& x, const Run& run, int64_t num_kv_heads) {
  return x.narrow(0, run.begin, run.num_sequences * run.length)
      .view({run.num_sequences, run.length, num_kv_heads, -1, x.size(2)})
      .permute({0, 2, 3, 1, 4});
}

// Returns positions [begin, begin + size) of x [s, h, g, n, d] as one matrix per (s, h): [s·h,
// g·size, d].
at::Tensor Matrices(const at::Tensor& x, int64_t begin, int64_t size) {
  return x.narrow(3, begin, size).reshape({x.size(0) * x.size(1), x.size(2) * size, x.size(4)});
}

// A tile of queries [begin, begin + size) and the keys that they see together.
struct Tile {
  Tile(const AttentionSpec& spec, int64_t first_query, int64_t num_queries)
      : begin(first_query),
        size(num_queries),
        first_key(spec.window == 0 ? 0 : std::max<int64_t>(0, begin + 1 - spec.window)),
        num_keys(begin + size - first_key) {}

  at::Tensor KeysOf(const at::Tensor& x) const { return x.narrow(1, first_key, num_keys); }

  int64_t begin;
  int64_t size;
  int64_t first_key;
  int64_t num_keys;
};

// Returns the attention probabilities of a tile: [s·h, g·t, m].
at::Tensor Probabilities(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                         int64_t groups, const Tile& tile) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  at::Tensor scores = at::bmm(q, k.transpose(1, 2)).mul_(spec.scale);
  const at::Tensor by_query = scores.view({-1, groups, tile.size, tile.num_keys});
  const auto options = q.options().dtype(at::kBool);
  // Only the last `size` keys can come after a query.
  const at::Tensor future = at::ones({tile.size, tile.size}, options).triu_(1);
  by_query.narrow(3, tile.num_keys - tile.size, tile.size).masked_fill_(future, kMinusInfinity);
  if (spec.window != 0) {
    const at::Tensor past = at::ones({tile.size, tile.num_keys}, options)
                                .tril_(tile.begin - tile.first_key - spec.window);
    by_query.masked_fill_(past, kMinusInfinity);
  }
  return at::softmax(scores, -1);
}

}  // namespace

at::Tensor CausalAttentionByTorch(const AttentionSpec& spec, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<int64_t>& cu_seqlens) {
  const int64_t num_kv_heads = k.size(1);
  const int64_t groups = q.size(1) / num_kv_heads;
  at::Tensor out = at::empty(q.sizes(), q.options());
  for (const Run& run : FindRuns(cu_seqlens)) {
    const at::Tensor q_heads = Heads(q, run, num_kv_heads);
    const at::Tensor k_all = Matrices(Heads(k, run, num_kv_heads), 0, run.length);
    const at::Tensor v_all = Matrices(Heads(v, run, num_kv_heads), 0, run.length);
    at::Tensor out_heads = Heads(out, run, num_kv_heads);
    for (int64_t begin = 0; begin < run.length; begin += kTileRows) {
      const int64_t size = std::min(kTileRows, run.length - begin);
      const Tile tile(spec, begin, size);
      const at::Tensor p =
          Probabilities(spec, Matrices(q_heads, begin, size), tile.KeysOf(k_all), groups, tile);
      at::Tensor out_tile = out_heads.narrow(3, begin, size);
      out_tile.copy_(at::bmm(p, tile.KeysOf(v_all)).view(out_tile.sizes()));
    }
  }
  return out;
}

AttentionGradients CausalAttentionBackwardByTorch(const AttentionSpec& spec, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const std::vector<int64_t>& cu_seqlens,
                                                  const at::Tensor& dout) {
  const int64_t num_kv_heads = k.size(1);
  const int64_t groups = q.size(1) / num_kv_heads;
  AttentionGradients gradients{.dq = at::empty(q.sizes(), q.options()),
                               .dk = at::empty(k.sizes(), k.options()),
                               .dv = at::empty(v.sizes(), v.options())};
  for (const Run& run : FindRuns(cu_seqlens)) {
    const at::Tensor q_heads = Heads(q, run, num_kv_heads);
    const at::Tensor dout_heads = Heads(dout, run, num_kv_heads);
    const at::Tensor k_all = Matrices(Heads(k, run, num_kv_heads), 0, run.length);
    const at::Tensor v_all = Matrices(Heads(v, run, num_kv_heads), 0, run.length);
    at::Tensor dk_all = at::zeros_like(k_all);
    at::Tensor dv_all = at::zeros_like(v_all);
    at::Tensor dq_heads = Heads(gradients.dq, run, num_kv_heads);
    for (int64_t begin = 0; begin < run.length; begin += kTileRows) {
      const int64_t size = std::min(kTileRows, run.length - begin);
      const Tile tile(spec, begin, size);
      const at::Tensor q_tile = Matrices(q_heads, begin, size);
      const at::Tensor dout_tile = Matrices(dout_heads, begin, size);
      const at::Tensor k_tile = tile.KeysOf(k_all);
      const at::Tensor v_tile = tile.KeysOf(v_all);
      const at::Tensor p = Probabilities(spec, q_tile, k_tile, groups, tile);

      tile.KeysOf(dv_all).baddbmm_(p.transpose(1, 2), dout_tile);
      // dS = P (dP - sum_j dP_j P_j), and S = scale q k^T.
      const at::Tensor dp = at::bmm(dout_tile, v_tile.transpose(1, 2));
      const at::Tensor ds = at::_softmax_backward_data(dp, p, -1, p.scalar_type()).mul_(spec.scale);
      tile.KeysOf(dk_all).baddbmm_(ds.transpose(1, 2), q_tile);
      at::Tensor dq_tile = dq_heads.narrow(3, begin, size);
      dq_tile.copy_(at::bmm(ds, k_tile).view(dq_tile.sizes()));
    }
    Heads(gradients.dk, run, num_kv_heads).copy_(dk_all.view(Heads(k, run, num_kv_heads).sizes()));
    Heads(gradients.dv, run, num_kv_heads).copy_(dv_all.view(Heads(v, run, num_kv_heads).sizes()));
  }
  return gradients;
}

}  // namespace lathe::worker
