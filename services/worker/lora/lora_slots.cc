#include "services/worker/lora/lora_slots.h"

#include <algorithm>

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
      entries_(at::zeros({kNumSlots, num_linears_, static_cast<int64_t>(sizeof(LoraSlotEntry))},
                         at::TensorOptions(at::kByte).device(device))) {}

bool LoraSlots::Fill(std::span<const AdapterWeights* const> adapters) {
  std::vector<int32_t> row_slots(row_slots_.size(0), -1);
  std::vector<const AdapterWeights*> used;
  for (size_t row = 0; row < adapters.size(); ++row) {
    if (adapters[row] == nullptr) continue;
    const auto found = std::find(used.begin(), used.end(), adapters[row]);
    row_slots[row] = static_cast<int32_t>(found - used.begin());
    if (found != used.end()) continue;
    if (adapters[row]->lora.rank > kMostRank) return false;
    used.push_back(adapters[row]);
  }
  if (static_cast<int64_t>(used.size()) > kNumSlots) return false;
  std::vector<LoraSlotEntry> entries(used.size() * num_linears_);
  for (size_t slot = 0; slot < used.size(); ++slot) {
    const std::vector<LoraPair>& linears = used[slot]->tensors.linears;
    for (size_t linear = 0; linear < linears.size(); ++linear) {
      entries[slot * num_linears_ + linear] = EntryOf(linears[linear], used[slot]->scaling);
    }
  }
  CopyTo(row_slots_, row_slots.data(), static_cast<int64_t>(row_slots.size() * sizeof(int32_t)));
  CopyTo(entries_, entries.data(), static_cast<int64_t>(entries.size() * sizeof(LoraSlotEntry)));
  return true;
}

void LoraSlots::Add(const at::Tensor& x, const std::vector<LoraPart>& parts) const {
  TORCH_CHECK(parts.size() <= LoraRowsTask::kMostParts && x.stride(1) == 1 &&
                  x.size(0) <= row_slots_.size(0),
              "rows or parts that LoraSlots is not made for");
  const auto has_kernel = [](const at::Tensor& rows) {
    return rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kBFloat16;
  };
  TORCH_CHECK(has_kernel(x) && has_kernel(parts[0].y), "rows are neither fp32 nor bf16");
  const auto num_parts = static_cast<int64_t>(parts.size());
  const at::Tensor products =
      at::empty({x.size(0), num_parts, kMostRank}, x.options().dtype(at::kFloat));
  LoraRowsTask task{.x = x.const_data_ptr(),
                    .x_is_bf16 = x.scalar_type() == at::kBFloat16,
                    .y_is_bf16 = parts[0].y.scalar_type() == at::kBFloat16,
                    .x_stride = x.stride(0),
                    .in_features = x.size(1),
                    .num_rows = x.size(0),
                    .row_slots = row_slots_.const_data_ptr<int32_t>(),
                    .slot_stride = num_linears_,
                    .num_parts = static_cast<int>(num_parts),
                    .most_rank = kMostRank,
                    .products = products.mutable_data_ptr<float>()};
  const auto* entries = reinterpret_cast<const LoraSlotEntry*>(entries_.const_data_ptr<uint8_t>());
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& y = parts[i].y;
    TORCH_CHECK(y.scalar_type() == parts[0].y.scalar_type(), "parts differ in dtype");
    task.parts[i] = {.y = y.mutable_data_ptr(),
                     .y_stride = y.stride(0),
                     .out_features = y.size(1),
                     .entries = entries + parts[i].linear};
  }
  AddLoraRowsOnDevice(task, CurrentStream(x.device()));
}

}  // namespace lathe::worker
