#include "services/engine/core/requests/save_sizes.h"

#include <algorithm>

namespace lathe::engine {

CheckpointKind CheckpointKindOf(OperationKind save) {
  if (save == OperationKind::kSaveWeightsExternal) return CheckpointKind::kExternal;
  return save == OperationKind::kSaveWeights ? CheckpointKind::kTraining : CheckpointKind::kSampler;
}

void RecordSize(State& s, const CheckpointRow& row) {
  s.checkpoint_bytes[{row.base_model, row.kind, row.lora.rank, row.lora.target_modules}] =
      row.size_bytes;
}

int64_t ExpectedSize(const State& s, const Model& model, OperationKind kind, const Plan& plan) {
  const auto* const save = std::get_if<SaveArgs>(&plan.args);
  if (save == nullptr || save->name.empty()) return 0;
  const LoraConfig& lora = model.row.lora;
  const CheckpointKind of_kind = CheckpointKindOf(kind);
  const CheckpointShape shape(model.row.base_model, of_kind, lora.rank, lora.target_modules);
  if (const int64_t* const bytes = Find(s.checkpoint_bytes, shape)) return *bytes;
  const auto like = s.checkpoint_bytes.lower_bound({model.row.base_model, of_kind, 0, {}});
  if (like == s.checkpoint_bytes.end()) return 0;
  const auto& [base_model, other_kind, rank, modules] = like->first;
  if (base_model != model.row.base_model || other_kind != of_kind) return 0;
  return like->second / std::max<int64_t>(1, rank) * lora.rank;
}

}  // namespace lathe::engine
