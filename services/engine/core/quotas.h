// What a tenant may use, and has used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnSetQuota(State& s, const SetQuota& event);

// The rate that one more request of `tokens` would break; ResourceExhausted `rate_limit` says when
// to come back. A request larger than the whole limit passes when the minute is empty.
std::optional<ErrorInfo> OverRate(State& s, const std::string& tenant_id, int64_t tokens);
// Counts an accepted request, now or at a restart.
void ChargeRate(State& s, const std::string& tenant_id, int64_t accepted_at, int64_t tokens);

// ResourceExhausted `queue_quota` when `bytes` more would wait than the tenant may have.
std::optional<ErrorInfo> OverQueue(const State& s, const std::string& tenant_id, int64_t bytes);

// PermissionDenied `storage_quota` or `adapter_quota` when what the tenant stores, or holds, has
// reached its limit; both mean that something must be deleted first.
std::optional<ErrorInfo> OverStorage(const State& s, const std::string& tenant_id);
std::optional<ErrorInfo> OverAdapters(const State& s, const std::string& tenant_id);

}  // namespace lathe::engine
