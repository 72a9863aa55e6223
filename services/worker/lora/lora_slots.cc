#include "services/worker/lora/lora_slots.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "services/worker/layers/device_stream.h"

namespace lathe::worker {
namespace {

LoraSlotEntry EntryOf(const LoraPair& pair, double scaling) {
  if (!pair.defined()) return {};
  return {.a = pair.a.const_data_ptr<float>(),
          .b_t = pair.b_t.const_data_ptr<float>(),
          .rank = pair.a.size(0),
          .scaling = static_cast<float>(scaling)};
}

void CopyTo(const at::Tensor& to, const void* from, int64_t num_bytes) {
  const at::Tensor host = at::from_blob(const_cast<void*>(from), {num_bytes}, at::kByte);
  to.view(at::kByte).flatten().narrow(0, 0, num_bytes).copy_(host);
}

}  // namespace

LoraSlots::LoraSlots(const DecoderSpec& model, int64_t most_rows, at::Device device)
    : num_linears_(static_cast<int64_t>(model.linears->rows.size())),
      row_slots_(at::full({most_rows}, -1, at::TensorOptions(at::kInt).device(device))),
      entries_(at::zeros({most_rows, num_linears_, static_cast<int64_t>(sizeof(LoraSlotEntry))},
                         at::TensorOptions(at::kByte).device(device))) {}

int64_t LoraSlots::Fill(std::span<const AdapterWeights* const> adapters) {
  std::vector<int32_t> row_slots(row_slots_.size(0), -1);
  std::vector<LoraSlotEntry> entries;
  std::unordered_map<const AdapterWeights*, int32_t> slots;
  int64_t rank = 0;
  for (size_t row = 0; row < adapters.size(); ++row) {
    const AdapterWeights* const adapter = adapters[row];
    if (adapter == nullptr) continue;
    const auto [slot, is_new] = slots.try_emplace(adapter, static_cast<int32_t>(slots.size()));
    row_slots[row] = slot->second;
    if (!is_new) continue;
    rank = std::max(rank, adapter->lora.rank);
    for (const LoraPair& linear : adapter->tensors.linears) {
      entries.push_back(EntryOf(linear, adapter->scaling));
    }
    entries.resize(slots.size() * num_linears_);
  }
  if (rank == 0) return 0;
  const auto* const most = std::lower_bound(kMostRanks.begin(), kMostRanks.end(), rank);
  TORCH_CHECK(most != kMostRanks.end(), "rank ", rank, " exceeds ", kMostRanks.back());
  most_rank_ = *most;
  if (row_slots != copied_row_slots_) {
    CopyTo(row_slots_, row_slots.data(), static_cast<int64_t>(row_slots.size() * sizeof(int32_t)));
    copied_row_slots_ = std::move(row_slots);
  }
  if (entries != copied_entries_) {
    CopyTo(entries_, entries.data(), static_cast<int64_t>(entries.size() * sizeof(LoraSlotEntry)));
    copied_entries_ = std::move(entries);
  }
  return most_rank_;
}

at::Tensor LoraSlots::ProductsOf(const at::Tensor& x, const std::vector<LoraPart>& parts) const {
  return at::empty({x.size(0), static_cast<int64_t>(parts.size()), most_rank_},
                   x.options().dtype(at::kFloat));
}

LoraRowsTask LoraSlots::TaskOf(const at::Tensor& x, const std::vector<LoraPart>& parts,
                               const LoraAddends& addends, const at::Tensor& products) const {
  TORCH_CHECK(parts.size() <= LoraRowsTask::kMostParts && x.stride(1) == 1 &&
                  x.size(0) <= row_slots_.size(0),
              "rows or parts that LoraSlots is not made for");
  const auto has_kernel = [](const at::Tensor& rows) {
    return rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kBFloat16;
  };
  TORCH_CHECK(has_kernel(x) && has_kernel(parts[0].y), "rows are neither fp32 nor bf16");
  LoraRowsTask task{.x = x.const_data_ptr(),
                    .x_is_bf16 = x.scalar_type() == at::kBFloat16,
                    .y_is_bf16 = parts[0].y.scalar_type() == at::kBFloat16,
                    .x_stride = x.stride(0),
                    .in_features = x.size(1),
                    .num_rows = x.size(0),
                    .row_slots = row_slots_.const_data_ptr<int32_t>(),
                    .slot_stride = num_linears_,
                    .num_parts = static_cast<int>(parts.size()),
                    .most_rank = most_rank_,
                    .products = products.mutable_data_ptr<float>()};
  const auto* entries = reinterpret_cast<const LoraSlotEntry*>(entries_.const_data_ptr<uint8_t>());
  int64_t num_columns = 0;
  for (const LoraPart& part : parts) num_columns += part.y.size(1);
  const at::Tensor& residual = addends.residual;
  TORCH_CHECK(!residual.defined() || (residual.dim() == 2 && residual.size(0) == x.size(0) &&
                                      residual.size(1) == num_columns && residual.stride(1) == 1),
              "a residual of another shape than the parts together");
  TORCH_CHECK(!addends.bias.defined() || (addends.bias.dim() == 1 && addends.bias.is_contiguous() &&
                                          addends.bias.size(0) == num_columns),
              "a bias of another length than the parts together");
  int64_t column = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& y = parts[i].y;
    TORCH_CHECK(y.scalar_type() == parts[0].y.scalar_type(), "parts differ in dtype");
    LoraRowsPart& part = task.parts[i];
    part = {.y = y.mutable_data_ptr(),
            .y_stride = y.stride(0),
            .out_features = y.size(1),
            .entries = entries + parts[i].linear};
    if (residual.defined()) {
      part.residual = residual.const_data_ptr<float>() + column;
      part.residual_stride = residual.stride(0);
    }
    if (addends.bias.defined()) part.bias = addends.bias.const_data_ptr<float>() + column;
    column += part.out_features;
  }
  return task;
}

void LoraSlots::Add(const at::Tensor& x, const std::vector<LoraPart>& parts,
                    const LoraAddends& addends) const {
  const at::Tensor products = ProductsOf(x, parts);
  AddLoraRowsOnDevice(TaskOf(x, parts, addends, products), CurrentStream(x.device()));
}

at::Tensor LoraSlots::AddGated(Activation activation, const at::Tensor& x,
                               const std::vector<LoraPart>& parts,
                               const LoraAddends& addends) const {
  TORCH_CHECK(parts.size() == 2 && parts[0].y.sizes() == parts[1].y.sizes(),
              "parts that are not gate and up");
  const at::Tensor products = ProductsOf(x, parts);
  at::Tensor activated = at::empty(parts[0].y.sizes(), parts[0].y.options());
  LoraRowsTask task = TaskOf(x, parts, addends, products);
  task.activated = activated.mutable_data_ptr();
  task.activated_stride = activated.stride(0);
  task.activation = activation;
  AddLoraRowsOnDevice(task, CurrentStream(x.device()));
  return activated;
}

const LoraSlots* SlotsOf(const std::vector<Segment>& segments) {
  return segments.size() == 1 ? segments[0].slots : nullptr;
}

}  // namespace lathe::worker
