#include <catch2/catch.hpp>

#include <limits>
#include <string>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

// In fp64 the two orders of summation differ by about 1e-15 only.
constexpr double kAttentionTolerance = 1e-10;
// Relative to the largest entry in fp32: sums have some hundred terms.
constexpr double kAttentionFloatTolerance = 3e-6;
// Relative to the largest entry. bf16 keeps 8 bits, so rounding one factor changes a product by up
// to 2^-9. Weights and score gradients are rounded here, and gradients pass through two products,
// hence twice that.
constexpr double kBf16Tolerance = 4e-3;

// Returns the arithmetics that this CPU supports.
std::vector<MatmulArithmetic> Arithmetics() {
  std::vector<MatmulArithmetic> all = {MatmulArithmetic::kFp32};
  if (CpuHasBf16()) all.push_back(MatmulArithmetic::kBf16);
  return all;
}

AttentionSpec SpecOf(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
                     int64_t window = 0) {
  return {.num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .scale = ScaleOf(head_dim),
          .window = window};
}

// The definition of attention, one sequence and one head after another, for autograd.
at::Tensor ReferenceSequence(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v) {
  const int64_t n = q.size(0);
  const int64_t groups = q.size(1) / k.size(1);
  at::Tensor unseen = at::ones({n, n}, at::kBool).triu(1);
  if (spec.window != 0) unseen = unseen.logical_or(at::ones({n, n}, at::kBool).tril(-spec.window));
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < q.size(1); ++head) {
    const at::Tensor scores =
        at::mm(q.select(1, head), k.select(1, head / groups).t()) * spec.scale;
    const at::Tensor p =
        scores.masked_fill(unseen, -std::numeric_limits<double>::infinity()).softmax(-1);
    heads.push_back(at::mm(p, v.select(1, head / groups)));
  }
  return at::stack(heads, 1);
}

at::Tensor Reference(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const std::vector<int64_t>& cu_seqlens) {
  std::vector<at::Tensor> sequences;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t begin = cu_seqlens[s];
    const int64_t size = cu_seqlens[s + 1] - begin;
    sequences.push_back(ReferenceSequence(spec, q.narrow(0, begin, size), k.narrow(0, begin, size),
                                          v.narrow(0, begin, size)));
  }
  return at::cat(sequences);
}

at::Tensor Leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).requires_grad_(true);
}

// Arguments of one attention step and the gradient of its output.
struct Inputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;

  Inputs Rounded() const {
    const auto round = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
    return {round(q), round(k), round(v), round(dout)};
  }

  Inputs Rows(int64_t begin, int64_t end) const {
    const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    return {rows(q), rows(k), rows(v), rows(dout)};
  }
};

Inputs RandomInputs(int64_t num_rows, int64_t num_kv_heads, int64_t group, int64_t head_dim) {
  const auto random = [&](int64_t heads) { return at::randn({num_rows, heads, head_dim}); };
  return {.q = random(num_kv_heads * group),
          .k = random(num_kv_heads),
          .v = random(num_kv_heads),
          .dout = random(num_kv_heads * group)};
}

struct Results {
  at::Tensor out;
  AttentionGradients d;
};

Results Run(const AttentionSpec& spec, const Inputs& x, const std::vector<int64_t>& cu_seqlens,
            MatmulArithmetic arithmetic) {
  const AttentionOutput output = CausalAttention(spec, x.q, x.k, x.v, cu_seqlens, arithmetic);
  return {output.out,
          CausalAttentionBackward(spec, x.q, x.k, x.v, cu_seqlens, output, x.dout, arithmetic)};
}

bool Equal(const Results& a, const Results& b) {
  return at::equal(a.out, b.out) && at::equal(a.d.dq, b.d.dq) && at::equal(a.d.dk, b.d.dk) &&
         at::equal(a.d.dv, b.d.dv);
}

// Compares the kernels with autograd over the definition in fp64.
void CheckKernels(MatmulArithmetic arithmetic, int64_t group, int64_t head_dim, int64_t window) {
  CAPTURE(group, head_dim, window);
  const bool is_bf16 = arithmetic == MatmulArithmetic::kBf16;
  const double tolerance = is_bf16 ? kBf16Tolerance : kAttentionFloatTolerance;
  at::manual_seed(100 * group + head_dim);
  // Lengths around the sizes of vectors, of key blocks and of query chunks, and an empty sequence.
  const std::vector<int64_t> cu_seqlens = {0, 1, 17, 33, 33, 97, 226, 229};
  const Inputs random = RandomInputs(cu_seqlens.back(), 2, group, head_dim);
  const Inputs x = is_bf16 ? random.Rounded() : random;
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(true); };
  const at::Tensor q = leaf(x.q);
  const at::Tensor k = leaf(x.k);
  const at::Tensor v = leaf(x.v);

  const AttentionSpec spec = SpecOf(2 * group, 2, head_dim, window);
  const at::Tensor expected = Reference(spec, q, k, v, cu_seqlens);
  expected.backward(x.dout.to(at::kDouble));
  const Results results = Run(spec, x, cu_seqlens, arithmetic);

  CHECK(RelativeDiff(results.out, expected.detach()) < tolerance);
  CHECK(RelativeDiff(results.d.dq, q.grad()) < tolerance);
  CHECK(RelativeDiff(results.d.dk, k.grad()) < tolerance);
  CHECK(RelativeDiff(results.d.dv, v.grad()) < tolerance);
}

}  // namespace

TEST_CASE("CausalAttention: forward and backward by torch equal autograd over the definition",
          "[layers][attention]") {
  at::manual_seed(7);
  // Runs of equal lengths, single tokens, and a sequence longer than one tile of queries.
  const std::vector<int64_t> cu_seqlens =
      GENERATE(std::vector<int64_t>{0, 5}, std::vector<int64_t>{0, 1, 2, 6, 10, 14, 17},
               std::vector<int64_t>{0, 600, 603}, std::vector<int64_t>{0, 300, 600});
  const int64_t num_kv_heads = GENERATE(1, 2, 4);
  const int64_t window = GENERATE(0, 4);
  const int64_t num_rows = cu_seqlens.back();
  const at::Tensor q = Leaf({num_rows, 4, 6});
  const at::Tensor k = Leaf({num_rows, num_kv_heads, 6});
  const at::Tensor v = Leaf({num_rows, num_kv_heads, 6});
  const at::Tensor dout = at::randn({num_rows, 4, 6}, at::kDouble);

  AttentionSpec spec = SpecOf(4, num_kv_heads, 6, window);
  spec.scale = 0.3;  // not that of most families
  const at::Tensor expected = Reference(spec, q, k, v, cu_seqlens);
  expected.backward(dout);
  const Results results =
      Run(spec, {q.detach(), k.detach(), v.detach(), dout}, cu_seqlens, MatmulArithmetic::kFp32);

  CHECK(RelativeDiff(results.out, expected.detach()) < kAttentionTolerance);
  CHECK(RelativeDiff(results.d.dq, q.grad()) < kAttentionTolerance);
  CHECK(RelativeDiff(results.d.dk, k.grad()) < kAttentionTolerance);
  CHECK(RelativeDiff(results.d.dv, v.grad()) < kAttentionTolerance);
}

TEST_CASE("CausalAttention: the kernels equal autograd over the definition in fp64",
          "[layers][attention]") {
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t group = GENERATE(1, 2, 4, 5, 8);
  const int64_t head_dim = GENERATE(6, 16, 24, 64, 128, 256);
  CheckKernels(arithmetic, group, head_dim, /*window=*/0);
}

TEST_CASE("CausalAttention: the kernels with a window equal autograd over the definition in fp64",
          "[layers][attention]") {
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t head_dim = GENERATE(6, 64, 256);
  const int64_t window = GENERATE(7, 64, 100);
  CheckKernels(arithmetic, /*group=*/3, head_dim, window);
}

TEST_CASE("CausalAttention: large scores overflow nowhere", "[layers][attention]") {
  at::manual_seed(9);
  Inputs x = RandomInputs(150, 1, 2, 16);
  x.q *= 100;
  const AttentionSpec spec = SpecOf(2, 1, 16);
  const at::Tensor expected =
      Reference(spec, x.q.to(at::kDouble), x.k.to(at::kDouble), x.v.to(at::kDouble), {0, 150});
  const Results results = Run(spec, x, {0, 150}, MatmulArithmetic::kFp32);
  CHECK(RelativeDiff(results.out, expected) < 1e-3);  // scores near 400 amplify rounding
  CHECK(results.d.dk.isfinite().all().item<bool>());
}

TEST_CASE("CausalAttention: a sequence's bits do not depend on what is packed beside it",
          "[layers][attention]") {
  at::manual_seed(10);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t group = GENERATE(1, 2, 3);
  const int64_t head_dim = GENERATE(16, 40, 128);
  const int64_t window = GENERATE(0, 100);
  const std::vector<int64_t> cu_seqlens = {0, 3, 204, 205, 500};
  const Inputs x = RandomInputs(cu_seqlens.back(), 2, group, head_dim);
  const AttentionSpec spec = SpecOf(2 * group, 2, head_dim, window);
  const Results packed = Run(spec, x, cu_seqlens, arithmetic);
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t begin = cu_seqlens[s];
    const int64_t end = cu_seqlens[s + 1];
    const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, end - begin); };
    const Results alone = Run(spec, x.Rows(begin, end), {0, end - begin}, arithmetic);
    CHECK(Equal(alone,
                {rows(packed.out), {rows(packed.d.dq), rows(packed.d.dk), rows(packed.d.dv)}}));
  }
}

TEST_CASE("CausalAttention: a sequence cut for many threads has the bits of one computed whole",
          "[layers][attention]") {
  at::manual_seed(11);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t group = GENERATE(1, 3);
  const Inputs x = RandomInputs(700, 2, group, 32);
  const AttentionSpec spec = SpecOf(2 * group, 2, 32, GENERATE(0, 100));
  const int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results whole = Run(spec, x, {0, 690, 700}, arithmetic);
  at::set_num_threads(16);
  const Results cut = Run(spec, x, {0, 690, 700}, arithmetic);
  at::set_num_threads(num_threads);
  CHECK(Equal(cut, whole));
}

TEST_CASE("CausalAttention: rows of a wider matrix give the same as a copy of them",
          "[layers][attention]") {
  at::manual_seed(8);
  const auto dtype = GENERATE(at::kDouble, at::kFloat);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const at::Tensor wide = at::randn({9, 40}, dtype);
  const at::Tensor v = wide.narrow(1, 8, 12).view({9, 2, 6});
  const at::Tensor dout = wide.narrow(1, 16, 24).view({9, 4, 6});
  const at::Tensor q = at::randn({9, 4, 6}, dtype);
  const at::Tensor k = at::randn({9, 2, 6}, dtype);
  const AttentionSpec spec = SpecOf(4, 2, 6);
  CHECK(Equal(Run(spec, {q, k, v, dout}, {0, 4, 9}, arithmetic),
              Run(spec, {q, k, v.contiguous(), dout.contiguous()}, {0, 4, 9}, arithmetic)));
}

TEST_CASE("CausalAttention: bf16 arithmetic rounds q, k, v and dL/dout and nothing before that",
          "[layers][attention]") {
  if (!CpuHasBf16()) return;
  at::manual_seed(12);
  const Inputs x = RandomInputs(90, 2, 2, 24);
  const AttentionSpec spec = SpecOf(4, 2, 24);
  const AttentionOutput output =
      CausalAttention(spec, x.q, x.k, x.v, {0, 90}, MatmulArithmetic::kBf16);
  const Inputs rounded = x.Rounded();
  CHECK(at::equal(output.out, CausalAttention(spec, rounded.q, rounded.k, rounded.v, {0, 90},
                                              MatmulArithmetic::kBf16)
                                  .out));
  CHECK_FALSE(at::equal(
      output.out, CausalAttention(spec, x.q, x.k, x.v, {0, 90}, MatmulArithmetic::kFp32).out));
}

TEST_CASE("CheckAttention: what no kernel computes is refused by name", "[layers][attention]") {
  const AttentionSpec good = SpecOf(9, 3, 64, /*window=*/7);
  CHECK(CheckAttention(good).ok());
  const auto message = [&](auto change) {
    AttentionSpec spec = good;
    change(spec);
    return std::string(CheckAttention(spec).message());
  };
  CHECK_THAT(message([](AttentionSpec& spec) { spec.num_heads = 10; }),
             Catch::Contains("num_attention_heads is 10"));
  CHECK_THAT(message([](AttentionSpec& spec) { spec.head_dim = 7; }),
             Catch::Contains("head_dim is 7"));
  CHECK_THAT(message([](AttentionSpec& spec) { spec.window = -1; }),
             Catch::Contains("sliding_window is -1"));
  CHECK_THAT(message([](AttentionSpec& spec) { spec.soft_cap = 50; }),
             Catch::Contains("attn_logit_softcapping is 50"));
  CHECK_THAT(message([](AttentionSpec& spec) { spec.has_sinks = true; }), Catch::Contains("sinks"));
}

}  // namespace lathe::worker
