#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "services/worker/layers/attention.h"

namespace lathe::worker {
namespace {

// fp64: the two orders of summation differ by rounding of order 1e-15 only.
constexpr double kTolerance = 1e-10;

// One sequence, one head after another: the definition, for autograd to differentiate.
at::Tensor ReferenceSequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t n = q.size(0);
  const int64_t groups = q.size(1) / k.size(1);
  const at::Tensor future = at::ones({n, n}, at::kBool).triu(1);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < q.size(1); ++head) {
    const at::Tensor scores = at::mm(q.select(1, head), k.select(1, head / groups).t()) /
                              std::sqrt(static_cast<double>(q.size(2)));
    const at::Tensor p =
        scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1);
    heads.push_back(at::mm(p, v.select(1, head / groups)));
  }
  return at::stack(heads, 1);
}

at::Tensor Reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::vector<int64_t>& cu_seqlens) {
  std::vector<at::Tensor> sequences;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t begin = cu_seqlens[s];
    const int64_t size = cu_seqlens[s + 1] - begin;
    sequences.push_back(ReferenceSequence(q.narrow(0, begin, size), k.narrow(0, begin, size),
                                          v.narrow(0, begin, size)));
  }
  return at::cat(sequences);
}

at::Tensor Leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).requires_grad_(true);
}

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("CausalAttention: forward and backward equal autograd over the definition",
          "[layers][attention]") {
  at::manual_seed(7);
  // Runs of equal lengths, single tokens, and a sequence longer than one tile of queries.
  const std::vector<int64_t> cu_seqlens =
      GENERATE(std::vector<int64_t>{0, 5}, std::vector<int64_t>{0, 1, 2, 6, 10, 14, 17},
               std::vector<int64_t>{0, 600, 603}, std::vector<int64_t>{0, 300, 600});
  const int64_t num_kv_heads = GENERATE(1, 2, 4);
  const int64_t num_rows = cu_seqlens.back();
  const at::Tensor q = Leaf({num_rows, 4, 6});
  const at::Tensor k = Leaf({num_rows, num_kv_heads, 6});
  const at::Tensor v = Leaf({num_rows, num_kv_heads, 6});
  const at::Tensor dout = at::randn({num_rows, 4, 6}, at::kDouble);

  const at::Tensor expected = Reference(q, k, v, cu_seqlens);
  expected.backward(dout);
  const at::Tensor out = CausalAttention(q.detach(), k.detach(), v.detach(), cu_seqlens);
  const AttentionGradients d =
      CausalAttentionBackward(q.detach(), k.detach(), v.detach(), cu_seqlens, dout);

  CHECK(MaxDiff(out, expected.detach()) < kTolerance);
  CHECK(MaxDiff(d.dq, q.grad()) < kTolerance);
  CHECK(MaxDiff(d.dk, k.grad()) < kTolerance);
  CHECK(MaxDiff(d.dv, v.grad()) < kTolerance);
}

TEST_CASE("CausalAttention: rows of a wider matrix give the same as a copy of them",
          "[layers][attention]") {
  at::manual_seed(8);
  const at::Tensor wide = at::randn({9, 40}, at::kDouble);
  const at::Tensor v = wide.narrow(1, 8, 12).view({9, 2, 6});
  const at::Tensor q = at::randn({9, 4, 6}, at::kDouble);
  const at::Tensor k = at::randn({9, 2, 6}, at::kDouble);
  CHECK(at::equal(CausalAttention(q, k, v, {0, 4, 9}),
                  CausalAttention(q, k, v.contiguous(), {0, 4, 9})));
}

}  // namespace lathe::worker
