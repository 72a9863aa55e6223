// Host versions of our GPU kernels, for the emulated GPU. They take the place of kernels/cuda in
// programs that link them. Arithmetic is fp32 and plain: they show that callers pass the right
// memory, not that the device code is right.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <set>
#include <vector>

#include "services/worker/kernels/cuda/lora_rows.h"
#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/kernels/cuda/row_kernels.h"
#include "services/worker/kernels/cuda/sample_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/emulated_gpu/gpu_operations.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

at::Tensor Blob(const void* data, at::IntArrayRef sizes, at::IntArrayRef strides,
                at::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(HostAddress(data)), sizes, strides,
                       at::TensorOptions(dtype));
}

// Contiguous numbers.
at::Tensor Blob(const void* data, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::from_blob(const_cast<void*>(HostAddress(data)), sizes, at::TensorOptions(dtype));
}

at::Tensor Rows(const DeviceRows& rows, int64_t num_rows, int64_t width) {
  return Blob(rows.data, {num_rows, width}, {rows.stride, 1},
              rows.is_bf16 ? at::kBFloat16 : at::kFloat);
}

at::Tensor Heads(const DeviceRows& rows, const PrepareHeadsDeviceTask& task) {
  return Blob(rows.data, {task.num_rows, task.num_heads, task.head_dim},
              {rows.stride, task.head_dim, 1}, rows.is_bf16 ? at::kBFloat16 : at::kFloat);
}

// Norm and rope of heads in fp32, by torch.
struct Preparation {
  at::Tensor weight;  // undefined: no norm
  double eps = 0;
  at::Tensor cos;  // [T, 1, D / 2]; undefined: no rope
  at::Tensor sin;

  Preparation(const float* norm, float norm_eps, const float* cos_table, const float* sin_table,
              const int64_t* positions, int64_t num_rows, int64_t head_dim)
      : eps(norm_eps) {
    if (norm != nullptr) weight = Blob(norm, {head_dim});
    if (cos_table == nullptr) return;
    const at::Tensor index = Blob(positions, {num_rows}, at::kLong);
    const auto* const own = index.const_data_ptr<int64_t>();
    const int64_t num_positions = *std::max_element(own, own + num_rows) + 1;
    const auto rows_of = [&](const float* table) {
      return Blob(table, {num_positions, head_dim / 2}).index_select(0, index).unsqueeze(1);
    };
    cos = rows_of(cos_table);
    sin = rows_of(sin_table);
  }

  at::Tensor Apply(const at::Tensor& x) const {
    at::Tensor y = x.to(at::kFloat);
    if (weight.defined()) y = RmsNormByTorch(y, weight, eps);
    return cos.defined() ? ApplyRope(y, cos, sin) : y;
  }

  at::Tensor Backward(const at::Tensor& x, const at::Tensor& dy) const {
    at::Tensor dx = dy.to(at::kFloat);
    if (cos.defined()) dx = ApplyRopeBackward(dx, cos, sin);
    return weight.defined() ? RmsNormBackwardByTorch(x.to(at::kFloat), weight, eps, dx) : dx;
  }
};

Preparation PreparationOf(const PrepareHeadsDeviceTask& task) {
  return {task.weight, task.eps, task.cos, task.sin, task.positions, task.num_rows, task.head_dim};
}

at::Tensor Pages(const void* data, const PagedShape& shape, int64_t num_pages) {
  return Blob(data, {num_pages, shape.num_kv_heads, shape.page_tokens, shape.head_dim},
              at::kBFloat16);
}

int64_t BytesOf(std::initializer_list<at::Tensor> tensors) {
  int64_t num_bytes = 0;
  for (const at::Tensor& x : tensors) num_bytes += TensorBytes(x);
  return num_bytes;
}

// Attention of one sequence in fp32: q [n, Hq, D] are the last rows of k, v [length, Hk, D].
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  int64_t window) {
  const int64_t num_rows = q.size(0);
  const int64_t length = k.size(0);
  const int64_t group = q.size(1) / k.size(1);
  at::Tensor seen = at::ones({num_rows, length}, at::kBool).tril_(length - num_rows);
  if (window != 0) seen.triu_(length - num_rows + 1 - window);
  const auto heads = [&](const at::Tensor& x) {
    return x.to(at::kFloat).repeat_interleave(group, 1).transpose(0, 1);
  };
  const at::Tensor scores =
      at::matmul(q.to(at::kFloat).transpose(0, 1), heads(k).transpose(1, 2))
          .mul_(scale)
          .masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
  return at::matmul(at::softmax(scores, -1), heads(v)).transpose(0, 1);
}

}  // namespace

void UseEmulatedKernels() {}

void RmsNormOnDevice(const RmsNormDeviceTask& task, DeviceStream) {
  const at::Tensor x = Rows(task.x, task.num_rows, task.width);
  const at::Tensor y = Rows(task.y, task.num_rows, task.width);
  const at::Tensor weight = Blob(task.weight, {task.width});
  const at::Tensor residual =
      task.residual.data == nullptr ? at::Tensor() : Rows(task.residual, task.num_rows, task.width);
  RecordLaunch("RmsNorm", BytesOf({x, y, weight, residual}));
  at::Tensor normed = RmsNormByTorch(x, weight, task.eps);
  y.copy_(residual.defined() ? normed.add_(residual) : normed);
}

void RmsNormBackwardOnDevice(const RmsNormBackwardDeviceTask& task, DeviceStream) {
  const auto rows = [&](const DeviceRows& of) { return Rows(of, task.num_rows, task.width); };
  const at::Tensor weight = Blob(task.weight, {task.width});
  const at::Tensor residual = task.residual.data == nullptr ? at::Tensor() : rows(task.residual);
  RecordLaunch("RmsNormBackward",
               BytesOf({rows(task.x), rows(task.dy), rows(task.dx), weight, residual}));
  at::Tensor dx = RmsNormBackwardByTorch(rows(task.x), weight, task.eps, rows(task.dy));
  if (residual.defined()) dx.add_(residual);
  rows(task.dx).copy_(dx);
}

void GatedActivationOnDevice(const GatedActivationDeviceTask& task, DeviceStream) {
  const auto rows = [&](const DeviceRows& of) { return Rows(of, task.num_rows, task.width); };
  RecordLaunch("GatedActivation", BytesOf({rows(task.gate), rows(task.up), rows(task.y)}));
  rows(task.y).copy_(GatedActivationByTorch(task.activation, rows(task.gate).to(at::kFloat),
                                            rows(task.up).to(at::kFloat)));
}

void GatedActivationBackwardOnDevice(const GatedActivationDeviceTask& task, DeviceStream) {
  const auto rows = [&](const DeviceRows& of) { return Rows(of, task.num_rows, task.width); };
  RecordLaunch("GatedActivationBackward",
               2 * BytesOf({rows(task.gate), rows(task.up)}) + BytesOf({rows(task.y)}));
  const at::Tensor gate = rows(task.gate).to(at::kFloat).clone();
  const at::Tensor up = rows(task.up).to(at::kFloat).clone();
  GatedActivationBackwardByTorch(task.activation, gate, up, rows(task.y).to(at::kFloat));
  rows(task.gate).copy_(gate);
  rows(task.up).copy_(up);
}

void PrepareHeadsOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream) {
  RecordLaunch("PrepareHeads", BytesOf({Heads(task.x, task), Heads(task.y, task)}));
  Heads(task.y, task).copy_(PreparationOf(task).Apply(Heads(task.x, task)));
}

void PrepareHeadsBackwardOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream) {
  const at::Tensor x = Heads(task.x, task);
  RecordLaunch("PrepareHeadsBackward", BytesOf({x, x, Heads(task.y, task)}));
  x.copy_(PreparationOf(task).Backward(x, Heads(task.y, task)));
}

namespace {

at::ScalarType DtypeOf(bool is_bf16) { return is_bf16 ? at::kBFloat16 : at::kFloat; }

// Outputs of AddLoraRowsOnDevice, and the bytes that its launches move.
class LoraRows {
 public:
  explicit LoraRows(const LoraRowsTask& task) : task_(task) {
    for (int i = 0; i < task.num_parts; ++i) AddAddends(task.parts[i]);
  }

  // Adds the products of a row with its adapter's linear.
  void AddProducts(int64_t row, int i, const LoraSlotEntry& entry) {
    TORCH_CHECK(entry.rank <= task_.most_rank, "a rank beyond the scratch memory's");
    const at::Tensor x = Blob(task_.x, {task_.num_rows, task_.in_features}, {task_.x_stride, 1},
                              DtypeOf(task_.x_is_bf16))
                             .narrow(0, row, 1)
                             .to(at::kFloat);
    const at::Tensor a = Blob(entry.a, {entry.rank, task_.in_features});
    const at::Tensor b_t = Blob(entry.b_t, {entry.rank, task_.parts[i].out_features});
    const at::Tensor xa = at::mm(x, a.t());
    const at::Tensor y = outputs_[i].narrow(0, row, 1);
    y.copy_(y.to(at::kFloat).addmm(xa, b_t, 1, entry.scaling));
    const bool is_new = seen_.insert(entry.a).second;
    bytes_of_a_ += BytesOf({x, xa, is_new ? a : at::Tensor()});
    bytes_of_b_ += BytesOf({xa, is_new ? b_t : at::Tensor()});
    if (!MovesAllRows(task_.parts[i])) bytes_of_b_ += 2 * BytesOf({y});
  }

  void Finish() {
    if (task_.activated != nullptr) {
      const at::Tensor activated = Blob(task_.activated, outputs_[0].sizes(),
                                        {task_.activated_stride, 1}, DtypeOf(task_.y_is_bf16));
      bytes_of_b_ += BytesOf({activated});
      activated.copy_(GatedActivationByTorch(task_.activation, outputs_[0].to(at::kFloat),
                                             outputs_[1].to(at::kFloat)));
    }
    RecordLaunch("AddLoraRows: A", bytes_of_a_);
    RecordLaunch("AddLoraRows: B", bytes_of_b_);
  }

 private:
  bool MovesAllRows(const LoraRowsPart& part) const {
    return part.residual != nullptr || part.bias != nullptr || task_.activated != nullptr;
  }

  void AddAddends(const LoraRowsPart& part) {
    const int64_t width = part.out_features;
    at::Tensor y =
        Blob(part.y, {task_.num_rows, width}, {part.y_stride, 1}, DtypeOf(task_.y_is_bf16));
    if (MovesAllRows(part)) bytes_of_b_ += BytesOf({y});
    if (task_.activated != nullptr) {
      y = y.clone();  // the parts are not written
    } else if (MovesAllRows(part)) {
      bytes_of_b_ += BytesOf({y});
    }
    const auto add = [&](const at::Tensor& addend) {
      y.add_(addend);
      bytes_of_b_ += BytesOf({addend});
    };
    if (part.residual != nullptr) {
      add(Blob(part.residual, {task_.num_rows, width}, {part.residual_stride, 1}, at::kFloat));
    }
    if (part.bias != nullptr) add(Blob(part.bias, {width}));
    outputs_.push_back(y);
  }

  const LoraRowsTask& task_;
  std::vector<at::Tensor> outputs_;  // by part
  std::set<const float*> seen_;      // factors that a row before had
  int64_t bytes_of_a_ = 0;
  int64_t bytes_of_b_ = 0;
};

}  // namespace

void AddLoraRowsOnDevice(const LoraRowsTask& task, DeviceStream) {
  LoraRows rows(task);
  const int32_t* const slots = HostOf(task.row_slots);
  for (int64_t row = 0; row < task.num_rows; ++row) {
    if (slots[row] < 0) continue;
    for (int i = 0; i < task.num_parts; ++i) {
      const LoraSlotEntry entry = HostOf(task.parts[i].entries)[slots[row] * task.slot_stride];
      if (entry.a != nullptr) rows.AddProducts(row, i, entry);
    }
  }
  rows.Finish();
}

bool HasPagedAttention(const PagedShape& shape) {
  return HasPrepareHeads(shape.head_dim) && shape.num_heads / shape.num_kv_heads <= 16;
}

PagedWorkspaceSizes PagedWorkspaceFor(const PagedShape&, const PagedRows&, bool, DeviceStream) {
  return {.float_bytes = 16, .int_bytes = 16};
}

PagedPlan PlanPagedAttention(const PagedShape&, const PagedRows& rows, bool,
                             const PagedWorkspaceSizes&, void*, void* int_workspace, DeviceStream) {
  *static_cast<int32_t*>(HostOf(int_workspace)) = rows.row_starts.back();
  PagedPlan plan;
  plan.numbers[0] = rows.row_starts.back();
  return plan;
}

void AttendPages(const PagedAttentionTask& task, const PagedPlan& plan, DeviceStream) {
  TORCH_CHECK(*static_cast<int32_t*>(HostOf(task.int_workspace)) == plan.numbers[0],
              "the workspace holds another plan");
  const PagedShape& shape = task.shape;
  const int32_t* const row_starts = HostOf(task.row_starts);
  const int32_t* const page_starts = HostOf(task.page_starts);
  const int64_t num_rows = row_starts[task.num_sequences];
  const at::Tensor q = Blob(task.q, {num_rows, shape.num_heads, shape.head_dim}, at::kBFloat16);
  const at::Tensor out = Blob(task.out, {num_rows, shape.num_heads, shape.head_dim}, at::kBFloat16);
  int64_t num_bytes = BytesOf({q, out});
  for (int64_t s = 0; s < task.num_sequences; ++s) {
    const int64_t begin = row_starts[s];
    const int64_t size = row_starts[s + 1] - begin;
    const int64_t num_pages = page_starts[s + 1] - page_starts[s];
    const int64_t length = (num_pages - 1) * shape.page_tokens + HostOf(task.last_page_tokens)[s];
    const at::Tensor pages = Blob(task.pages + page_starts[s], {num_pages}, at::kInt).to(at::kLong);
    const int64_t most = pages.max().item<int64_t>() + 1;
    const auto rows_of = [&](const uint16_t* data) {
      return Pages(data, shape, most)
          .index_select(0, pages)
          .transpose(1, 2)
          .reshape({-1, shape.num_kv_heads, shape.head_dim})
          .narrow(0, 0, length);
    };
    const at::Tensor keys = rows_of(task.keys);
    const at::Tensor values = rows_of(task.values);
    out.narrow(0, begin, size)
        .copy_(Attend(q.narrow(0, begin, size), keys, values, task.scale, shape.window));
    const int64_t num_read = shape.window == 0 ? length : std::min(length, shape.window + size - 1);
    num_bytes += BytesOf({keys.narrow(0, 0, num_read), values.narrow(0, 0, num_read)});
  }
  RecordLaunch("AttendPages", num_bytes);
}

void PrepareAndWrite(const PrepareAndWriteTask& task, DeviceStream) {
  const PagedShape& shape = task.shape;
  const auto heads_of = [&](const void* data, int64_t num_heads) {
    return Blob(data, {task.num_rows, num_heads, shape.head_dim},
                {task.row_stride, shape.head_dim, 1}, task.is_bf16 ? at::kBFloat16 : at::kFloat);
  };
  const auto preparation_of = [&](const float* weight) {
    return Preparation(weight, task.eps, task.cos, task.sin, task.positions, task.num_rows,
                       shape.head_dim);
  };
  const at::Tensor q = heads_of(task.q, shape.num_heads);
  const at::Tensor out_q =
      Blob(task.out_q, {task.num_rows, shape.num_heads, shape.head_dim}, at::kBFloat16);
  out_q.copy_(preparation_of(task.q_weight).Apply(q));
  const at::Tensor k = preparation_of(task.k_weight).Apply(heads_of(task.k, shape.num_kv_heads));
  const at::Tensor v = heads_of(task.v, shape.num_kv_heads);
  RecordLaunch("PrepareAndWrite", BytesOf({q, out_q, heads_of(task.k, shape.num_kv_heads), v}) +
                                      2 * v.numel() * static_cast<int64_t>(sizeof(at::BFloat16)));
  for (int64_t row = 0; row < task.num_rows; ++row) {
    const int64_t slot = HostOf(task.slots)[row];
    const int64_t page = slot / shape.page_tokens;
    const int64_t place = slot % shape.page_tokens;
    Pages(task.keys, shape, page + 1).select(0, page).select(1, place).copy_(k.select(0, row));
    Pages(task.values, shape, page + 1).select(0, page).select(1, place).copy_(v.select(0, row));
  }
}

void SampleRowsOnDevice(const SampleRowsTask& task, DeviceStream) {
  const at::Tensor logits =
      Blob(task.logits, {task.num_rows, task.vocab_size}, {task.row_stride, 1}, at::kFloat);
  RecordLaunch("SampleRows", BytesOf({logits}));
  for (int64_t row = 0; row < task.num_rows; ++row) {
    const RowInput& input = HostOf(task.inputs)[row];
    const SamplingParams params = {
        .temperature = input.is_greedy != 0 ? 0 : 1.0 / input.inverse_temperature,
        .top_k = input.top_k == 0 ? -1 : input.top_k,
        .top_p = input.top_p,
        .min_p = input.min_p,
        .seed = input.seed};
    TopkLogprobs top{.k = input.num_top};
    const SampleInput own = {.params = &params,
                             .sample_index = input.sample_index,
                             .position = input.position,
                             .top = input.num_top > 0 ? &top : nullptr};
    const TokenSamples sampled = SampleTokens(logits.narrow(0, row, 1), std::vector{own});
    HostOf(task.tokens)[row] = sampled.tokens[0];
    HostOf(task.logprobs)[row] = sampled.logprobs[0];
    if (input.num_top == 0) continue;
    std::ranges::copy(top.token_ids, HostOf(task.top_tokens) + row * task.most_top);
    std::ranges::copy(top.logprobs, HostOf(task.top_logprobs) + row * task.most_top);
  }
}

}  // namespace lathe::worker
