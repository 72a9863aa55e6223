#include "services/engine/core/requests/tenant_usage.h"

#include <utility>

namespace lathe::engine {
namespace {

bool IsUnfetched(const RequestRow& row) { return row.delivered_at == 0 && row.result_bytes > 0; }

void ChangeUnfetched(State& s, const RequestRow& row, int64_t sign) {
  const int64_t before = UsageOf(s, row.tenant_id).unfetched_results;
  s.tenants_by_unfetched.erase({before, row.tenant_id});
  if (before + sign > 0) s.tenants_by_unfetched.emplace(before + sign, row.tenant_id);
  s.num_unfetched += sign;
  ChangeUsage(s, row.tenant_id, &TenantUsage::unfetched_results, sign);
  ChangeUsage(s, row.tenant_id, &TenantUsage::unfetched_bytes, sign * row.result_bytes);
}

bool MakesSampler(const Request& request) {
  return request.plan != nullptr && !request.plan->sampling_session_id.empty();
}

}  // namespace

void ChangeUsage(State& s, const std::string& tenant_id, int64_t TenantUsage::*counter,
                 int64_t change) {
  if (change == 0) return;
  const auto it = s.usage.try_emplace(tenant_id).first;
  it->second.*counter += change;
  if (it->second == TenantUsage()) s.usage.erase(it);
  s.follow_ups.tenants.insert(tenant_id);
}

TenantUsage UsageOf(const State& s, const std::string& tenant_id) {
  const TenantUsage* const found = Find(s.usage, tenant_id);
  return found == nullptr ? TenantUsage() : *found;
}

void AddUnfetched(State& s, const RequestRow& row) {
  if (!IsUnfetched(row)) return;
  s.unfetched[row.tenant_id].emplace(row.done_at, row.request_id);
  ChangeUnfetched(s, row, +1);
  s.follow_ups.unfetched.insert(row.tenant_id);
}

void RemoveUnfetched(State& s, const RequestRow& row) {
  if (!IsUnfetched(row)) return;
  const auto of_tenant = s.unfetched.find(row.tenant_id);
  of_tenant->second.erase({row.done_at, row.request_id});
  if (of_tenant->second.empty()) s.unfetched.erase(of_tenant);
  ChangeUnfetched(s, row, -1);
}

void ChangeReserved(State& s, const Request& request, int64_t sign) {
  const std::string& tenant_id = request.row.tenant_id;
  if (MakesSampler(request)) ChangeUsage(s, tenant_id, &TenantUsage::reserved_samplers, sign);
  ChangeUsage(s, tenant_id, &TenantUsage::reserved_bytes, sign * request.reserved_bytes);
}

std::map<std::string, TenantUsage> Recount(const State& s) {
  std::map<std::string, TenantUsage> usage;
  for (const auto& [id, session] : s.sessions) {
    if (session.row.state != SessionState::kEnded) ++usage[session.row.tenant_id].sessions;
  }
  for (const auto& [id, sampler] : s.samplers) ++usage[sampler.row.tenant_id].samplers;
  for (const auto& [id, request] : s.requests) {
    TenantUsage& one = usage[request.row.tenant_id];
    if (request.live()) {
      ++one.num_rows;
      one.bytes += request.row.body_bytes;
      one.reserved_samplers += MakesSampler(request) ? 1 : 0;
      one.reserved_bytes += request.reserved_bytes;
    } else if (IsUnfetched(request.row)) {
      ++one.unfetched_results;
      one.unfetched_bytes += request.row.result_bytes;
    }
  }
  std::erase_if(usage, [](const auto& entry) { return entry.second == TenantUsage(); });
  return usage;
}

}  // namespace lathe::engine
