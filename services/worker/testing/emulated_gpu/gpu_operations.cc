#include "services/worker/testing/emulated_gpu/gpu_operations.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

using torch::jit::Stack;

using Arguments = const c10::IValue*;
using Results = std::vector<c10::IValue>;

// Products of bf16 factors with an fp32 result.
Results Mm(Arguments in) {
  const at::ScalarType dtype = in[2].toScalarType();
  return {at::mm(in[0].toTensor().to(dtype), in[1].toTensor().to(dtype))};
}

Results AddmmOut(Arguments in) {
  const at::ScalarType dtype = in[3].toScalarType();
  at::Tensor out = in[6].toTensor();
  TORCH_CHECK(out.scalar_type() == dtype && in[0].toTensor().scalar_type() == dtype,
              "addmm with an fp32 result: the sum is not fp32");
  out.copy_(at::addmm(in[0].toTensor(), in[1].toTensor().to(dtype), in[2].toTensor().to(dtype),
                      in[4].toScalar(), in[5].toScalar()));
  return {out};
}

std::vector<int64_t> StartsOf(const c10::IValue& value) {
  const at::Tensor starts = value.toTensor();
  TORCH_CHECK(starts.scalar_type() == at::kInt && starts.dim() == 1,
              "flash attention takes int32 starts");
  const at::Tensor wide = starts.to(at::kLong).contiguous();
  const auto* const data = wide.const_data_ptr<int64_t>();
  return {data, data + wide.numel()};
}

void CheckHeads(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kBFloat16 && x.dim() == 3 && x.stride(2) == 1,
              "flash attention takes rows of bf16 heads");
  TORCH_CHECK(x.size(2) % 8 == 0 && x.size(2) <= 256, "flash attention does not take this head");
}

AttentionSpec SpecOf(const at::Tensor& q, const at::Tensor& k, const c10::IValue& scale,
                     const c10::IValue& window_left) {
  return {.num_heads = q.size(1),
          .num_kv_heads = k.size(1),
          .head_dim = q.size(2),
          .scale = scale.toDouble(),
          .window = window_left.isNone() ? 0 : window_left.toInt() + 1};
}

Results FlashForward(Arguments in) {
  const at::Tensor q = in[0].toTensor(), k = in[1].toTensor(), v = in[2].toTensor();
  for (const at::Tensor& x : {q, k, v}) CheckHeads(x);
  TORCH_CHECK(in[8].toBool(), "attention is causal");
  const AttentionSpec spec = SpecOf(q, k, in[10], in[11]);
  const auto fp32 = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const at::Tensor out = CausalAttentionByTorch(spec, fp32(q), fp32(k), fp32(v), StartsOf(in[3]));
  // The gradient below computes the weights anew, so the sums only keep their place.
  const at::Tensor log_sums = at::zeros({q.size(1), q.size(0)}, at::kFloat);
  const at::Tensor none = at::empty({0}, at::kLong);
  return {out.to(at::kBFloat16), log_sums, none, none, none};
}

Results FlashBackward(Arguments in) {
  const at::Tensor dout = in[0].toTensor(), q = in[1].toTensor(), k = in[2].toTensor();
  const at::Tensor v = in[3].toTensor(), out = in[4].toTensor(), log_sums = in[5].toTensor();
  for (const at::Tensor& x : {dout, q, k, v, out}) CheckHeads(x);
  TORCH_CHECK(log_sums.scalar_type() == at::kFloat && log_sums.size(0) == q.size(1) &&
                  log_sums.size(1) == q.size(0),
              "sums of other rows than the forward step's");
  const AttentionSpec spec = SpecOf(q, k, in[14], in[15]);
  const auto fp32 = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const AttentionGradients d =
      CausalAttentionBackwardByTorch(spec, fp32(q), fp32(k), fp32(v), StartsOf(in[6]), fp32(dout));
  const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  return {bf16(d.dq), bf16(d.dk), bf16(d.dv)};
}

}  // namespace

bool RunGpuOperation(const c10::OperatorHandle& op, Stack& stack) {
  static const std::map<std::string, Results (*)(Arguments)> operations = {
      {"aten::mm.dtype", &Mm},
      {"aten::addmm.dtype_out", &AddmmOut},
      {"aten::_flash_attention_forward.", &FlashForward},
      {"aten::_flash_attention_backward.", &FlashBackward}};
  const auto found = operations.find(op.schema().name() + "." + op.schema().overload_name());
  if (found == operations.end()) return false;
  const size_t begin = stack.size() - op.schema().arguments().size();
  Results results = found->second(stack.data() + begin);
  stack.resize(begin);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
  return true;
}

}  // namespace lathe::worker
