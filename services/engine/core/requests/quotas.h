// Limits and usage of tenants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnSetQuota(State& s, const SetQuota& event);

// Returns the error if one more request of `tokens` would exceed a rate limit. ResourceExhausted
// `rate_limit` says when to retry. A request larger than the whole limit passes when the last
// minute is empty.
std::optional<ErrorInfo> OverRate(State& s, const std::string& tenant_id, int64_t tokens);
// Counts an accepted request, now or at a restart.
void ChargeRate(State& s, const std::string& tenant_id, int64_t accepted_at, int64_t tokens);

// Returns the bound that one more request of `tenant_id` would exceed. `model`: nullptr for
// samples.
std::optional<ErrorInfo> OverBound(const State& s, const std::string& tenant_id, const Model* model,
                                   int64_t bytes);

// Returns ResourceExhausted `queue_quota` for a new request whose body was not stored.
ErrorInfo BodyWithheld(const Submit& submit);

// Returns ResourceExhausted `queue_quota` if `bytes` more would exceed the tenant's queue limit.
std::optional<ErrorInfo> OverQueue(const State& s, const std::string& tenant_id, int64_t bytes);

// Return PermissionDenied `storage_quota` or `adapter_quota` if the tenant's checkpoints or live
// models have reached the limit. The tenant must then delete some first. Checkpoints that
// unfinished saves will write count with their expected sizes.
std::optional<ErrorInfo> OverStorage(const State& s, const std::string& tenant_id);
std::optional<ErrorInfo> OverAdapters(State& s, const std::string& tenant_id);

// Return PermissionDenied `session_quota` or `sampler_quota` if the tenant's sessions or samplers
// have reached the limit. Samplers that unfinished saves will make count too.
std::optional<ErrorInfo> OverSessions(const State& s, const std::string& tenant_id);
std::optional<ErrorInfo> OverSamplers(const State& s, const std::string& tenant_id);

// Returns true if the tenant has more unfetched results than its limits allow. One is allowed
// whatever its size.
bool IsOverUnfetched(const State& s, const std::string& tenant_id);

// Returns the quota with the limits of `options` in place of kDefaultLimit.
QuotaRow WithDefaults(QuotaRow row, const CoreOptions& options);

// Publishes the use and the room of the tenants for which they changed. It ends a Step.
void NotifyTenants(State& s);

// Counts a successful request. Call it before its plan is dropped. There is one row per hour,
// session and base model. Refusals, failures and cancelled samples do not count.
void CountUsage(State& s, const Request& request, const WorkerDone& done);

void CountCheckpoint(State& s, const std::string& tenant_id, const std::string& session_id,
                     const std::string& base_model);

// Runs once an hour, by tenant and base model. The row holds a level: counting again after a
// restart does not add to it.
void CountStorage(State& s);

}  // namespace lathe::engine
