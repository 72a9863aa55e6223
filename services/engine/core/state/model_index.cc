#include "services/engine/core/state/model_index.h"

namespace lathe::engine {
namespace {

void Add(std::map<std::string, int64_t>& counts, const std::string& key, int64_t sign) {
  const auto it = counts.emplace(key, 0).first;
  it->second += sign;
  if (it->second == 0) counts.erase(it);
}

void Schedule(DueTimes& times, const std::string& id, int64_t due_at, bool is_in) {
  if (due_at == 0) return;
  if (is_in) {
    times.Set(id, due_at);
  } else {
    times.Remove(id);
  }
}

}  // namespace

void ModelIndex::Count(const std::string& id, const std::string& tenant_id,
                       const std::string& base_model, const ModelFacts& facts, int64_t sign) {
  const bool is_in = sign > 0;
  const auto place = at.try_emplace({facts.group, base_model}).first;
  ModelsAt& here = place->second;
  here.load += sign * facts.load;
  here.write_time += sign * facts.write_time;
  if (facts.is_started) here.num_started += sign;
  if ((facts.waits || facts.is_started) && facts.num_cut > 0) here.num_cut += sign;
  if (facts.waits && is_in) here.waiting.emplace(facts.not_before, facts.num_cut, id);
  if (facts.waits && !is_in) here.waiting.erase({facts.not_before, facts.num_cut, id});
  if (facts.is_writable) here.writable.Set(id, is_in);
  if (facts.has_home) here.with_home.Set(id, is_in);
  if (is_in) {
    here.all.insert(id);
  } else {
    here.all.erase(id);
  }
  if (here.all.empty()) at.erase(place);
  if (facts.is_adapter) Add(num_adapters, tenant_id, sign);
  if (facts.is_ready) Add(num_ready, base_model, sign);
  if (facts.has_gap) with_gap.Set(id, is_in);
  if (facts.is_moving) moving.Set(id, is_in);
  if (facts.is_noticed) noticed.Set(id, is_in);
  Schedule(idle, id, facts.idle_at, is_in);
  Schedule(cooling, id, facts.cools_at, is_in);
}

}  // namespace lathe::engine
