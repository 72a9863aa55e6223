#include "services/engine/core/usage.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lathe::engine {
namespace {

constexpr int64_t kHour = 3600 * kSecond;

int64_t HourOf(int64_t time) { return time - time % kHour; }

std::string BaseModelOf(const State& s, const Request& request) {
  if (request.row.op_class == OpClass::kSample) {
    const Sampler* const sampler = Find(s.samplers, request.row.owner_id);
    return sampler == nullptr ? "" : sampler->row.base_model;
  }
  const Model* const model = Find(s.models, request.plan->model_id);
  return model == nullptr ? "" : model->row.base_model;
}

UsageRow RowFor(const State& s, const std::string& tenant_id, const std::string& session_id,
                const std::string& base_model) {
  UsageRow row;
  row.tenant_id = tenant_id;
  row.hour = HourOf(s.now);
  row.session_id = session_id;
  row.base_model = base_model;
  return row;
}

void CountSample(const Request& request, const WorkerDone& done, UsageRow& row) {
  const int64_t prompt_tokens = std::get<SampleArgs>(request.plan->args).prompt_tokens;
  row.cached_prefill_tokens =
      std::clamp<int64_t>(done.cached_prompt_tokens, 0, std::max<int64_t>(0, prompt_tokens));
  row.prefill_tokens = prompt_tokens - row.cached_prefill_tokens;
  row.sampled_tokens = done.sampled_tokens;
}

// Fills the usage of a request. Returns false if operations of this kind are free.
bool Count(const Request& request, const WorkerDone& done, UsageRow& row) {
  switch (request.row.kind) {
    case OperationKind::kForward:
      row.forward_tokens = request.row.tokens;
      return true;
    case OperationKind::kForwardBackward:
      row.forward_backward_tokens = request.row.tokens;
      return true;
    case OperationKind::kSample:
      CountSample(request, done, row);
      return true;
    case OperationKind::kSaveWeights:
    case OperationKind::kSaveWeightsForSampler:
    case OperationKind::kSaveWeightsExternal:
      // An unnamed version does not count as a checkpoint.
      row.num_checkpoints = request.plan->version_id.empty() ? 1 : 0;
      return row.num_checkpoints > 0;
    default:
      return false;
  }
}

}  // namespace

void CountUsage(State& s, const Request& request, const WorkerDone& done) {
  UsageRow row = RowFor(s, request.row.tenant_id, request.session_id, BaseModelOf(s, request));
  if (Count(request, done, row)) s.fx.Put(AddUsage{std::move(row)});
}

void CountCheckpoint(State& s, const std::string& tenant_id, const std::string& session_id,
                     const std::string& base_model) {
  UsageRow row = RowFor(s, tenant_id, session_id, base_model);
  row.num_checkpoints = 1;
  s.fx.Put(AddUsage{std::move(row)});
}

void CountStorage(State& s) {
  if (HourOf(s.now) == s.storage_hour) return;
  s.storage_hour = HourOf(s.now);
  std::map<std::pair<std::string, std::string>, int64_t> stored_bytes;
  for (const auto& [path, checkpoint] : s.checkpoints) {
    stored_bytes[{checkpoint.tenant_id, checkpoint.base_model}] += checkpoint.size_bytes;
  }
  for (const auto& [owner, bytes] : stored_bytes) {
    UsageRow row = RowFor(s, owner.first, "", owner.second);
    row.stored_bytes = bytes;
    s.fx.PutLater(AddUsage{std::move(row)});
  }
}

}  // namespace lathe::engine
