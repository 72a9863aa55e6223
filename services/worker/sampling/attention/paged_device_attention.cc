#include "services/worker/sampling/attention/paged_device_attention.h"

#include "services/worker/layers/device_stream.h"
#include "services/worker/layers/norms.h"

namespace lathe::worker {
namespace {

uint16_t* Bf16Of(const at::Tensor& x) {
  return reinterpret_cast<uint16_t*>(x.mutable_data_ptr<at::BFloat16>());
}

at::Tensor Bytes(size_t count, at::Device device) {
  return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(at::kByte).device(device));
}

// All in one transfer.
PagedInputs Upload(const PagedBatch& batch, at::Device device) {
  const std::vector<const std::vector<int32_t>*> parts = {&batch.rows.row_starts,
                                                          &batch.rows.page_starts, &batch.pages,
                                                          &batch.last_page_tokens, &batch.slots};
  std::vector<int32_t> all;
  for (const auto* part : parts) all.insert(all.end(), part->begin(), part->end());
  const at::Tensor uploaded = at::tensor(all, at::kInt).to(device);
  int64_t begin = 0;
  const auto next = [&](const std::vector<int32_t>& part) {
    const auto size = static_cast<int64_t>(part.size());
    begin += size;
    return uploaded.narrow(0, begin - size, size);
  };
  PagedInputs inputs;
  inputs.row_starts = next(batch.rows.row_starts);
  inputs.page_starts = next(batch.rows.page_starts);
  inputs.pages = next(batch.pages);
  inputs.last_page_tokens = next(batch.last_page_tokens);
  inputs.slots = next(batch.slots);
  return inputs;
}

void CheckRows(const at::Tensor& x, int64_t row_stride, at::ScalarType dtype) {
  // The stride of one row means nothing: a view may give it any value.
  const bool has_row_stride = x.size(0) == 1 || x.stride(0) == row_stride;
  TORCH_CHECK(x.stride(2) == 1 && x.stride(1) == x.size(2) && has_row_stride,
              "queries, keys and values are not slices of one matrix");
  TORCH_CHECK(x.scalar_type() == dtype && (dtype == at::kFloat || dtype == at::kBFloat16),
              "queries, keys and values are neither fp32 nor bf16");
}

}  // namespace

void PagedBatch::Add(const CachedRows& sequence) {
  if (rows.row_starts.empty()) rows = {.row_starts = {0}, .page_starts = {0}};
  const KvSequence& kv = *sequence.kv;
  const auto num_pages = KvCache::BlocksFor(kv.length);
  pages.insert(pages.end(), kv.blocks.begin(), kv.blocks.begin() + num_pages);
  rows.row_starts.push_back(rows.row_starts.back() + static_cast<int32_t>(sequence.num_rows));
  rows.page_starts.push_back(static_cast<int32_t>(pages.size()));
  last_page_tokens.push_back(
      static_cast<int32_t>(kv.length - (num_pages - 1) * KvCache::kBlockTokens));
  for (int64_t position = sequence.first_position(); position < kv.length; ++position) {
    slots.push_back(
        static_cast<int32_t>(kv.blocks[position / KvCache::kBlockTokens] * KvCache::kBlockTokens +
                             position % KvCache::kBlockTokens));
  }
}

void PagedBatch::AddPadding(int32_t page) {
  pages.push_back(page);
  rows.row_starts.push_back(rows.row_starts.back() + 1);
  rows.page_starts.push_back(static_cast<int32_t>(pages.size()));
  last_page_tokens.push_back(1);
  slots.push_back(static_cast<int32_t>(page * KvCache::kBlockTokens));
}

PagedShape PagedShapeOf(const AttentionSpec& spec) {
  return {.num_heads = spec.num_heads,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim = spec.head_dim,
          .page_tokens = KvCache::kBlockTokens,
          .window = spec.window};
}

PagedPass PlanPagedPass(const PagedShape& shape, const PagedBatch& batch, at::Device device) {
  const DeviceStream stream = CurrentStream(device);
  const auto sizes = PagedWorkspaceFor(shape, batch.rows, /*is_graph=*/false, stream);
  PagedPass pass{.shape = shape,
                 .inputs = Upload(batch, device),
                 .plan = {},
                 .float_workspace = Bytes(sizes.float_bytes, device),
                 .int_workspace = Bytes(sizes.int_bytes, device)};
  pass.plan = PlanPagedAttention(shape, batch.rows, /*is_graph=*/false, sizes,
                                 pass.float_workspace.mutable_data_ptr(),
                                 pass.int_workspace.mutable_data_ptr(), stream);
  return pass;
}

at::Tensor PagedDeviceAttention::Attend(int64_t layer, const AttentionSpec& spec,
                                        const QkvHeads& raw, const QkPreparation& preparation) {
  const auto& [qk, v] = raw;
  const PagedPass& pass = pass_for_(spec);
  for (const at::Tensor* x : {&qk.q, &qk.k, &v}) CheckRows(*x, qk.q.stride(0), v.scalar_type());
  cache_.Allocate(v);
  const DeviceStream stream = CurrentStream(v.device());
  const PreparationPointers pointers = PointersOf(preparation);
  const at::Tensor q = at::empty(qk.q.sizes(), v.options().dtype(at::kBFloat16));
  const at::Tensor out = at::empty_like(q);
  PrepareAndWrite({.shape = pass.shape,
                   .num_rows = q.size(0),
                   .q = qk.q.const_data_ptr(),
                   .k = qk.k.const_data_ptr(),
                   .v = v.const_data_ptr(),
                   .is_bf16 = v.scalar_type() == at::kBFloat16,
                   .row_stride = v.stride(0),
                   .q_weight = pointers.q_weight,
                   .k_weight = pointers.k_weight,
                   .eps = pointers.eps,
                   .cos = pointers.cos,
                   .sin = pointers.sin,
                   .positions = pointers.positions,
                   .slots = pass.inputs.slots.const_data_ptr<int32_t>(),
                   .out_q = Bf16Of(q),
                   .keys = Bf16Of(cache_.keys(layer)),
                   .values = Bf16Of(cache_.values(layer))},
                  stream);
  const PagedInputs& inputs = pass.inputs;
  AttendPages({.shape = pass.shape,
               .scale = static_cast<float>(spec.scale),
               .num_sequences = inputs.last_page_tokens.size(0),
               .q = Bf16Of(q),
               .keys = Bf16Of(cache_.keys(layer)),
               .values = Bf16Of(cache_.values(layer)),
               .row_starts = inputs.row_starts.mutable_data_ptr<int32_t>(),
               .page_starts = inputs.page_starts.mutable_data_ptr<int32_t>(),
               .pages = inputs.pages.mutable_data_ptr<int32_t>(),
               .last_page_tokens = inputs.last_page_tokens.mutable_data_ptr<int32_t>(),
               .float_workspace = pass.float_workspace.mutable_data_ptr(),
               .int_workspace = pass.int_workspace.mutable_data_ptr(),
               .out = Bf16Of(out)},
              pass.plan, stream);
  return out.to(v.scalar_type());
}

}  // namespace lathe::worker
