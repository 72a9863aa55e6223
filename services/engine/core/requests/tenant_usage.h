// Counters of what each tenant holds. They follow every change, so that no decision walks over a
// tenant's objects.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Adds `change` to one counter of the tenant.
void ChangeUsage(State& s, const std::string& tenant_id, int64_t TenantUsage::*counter,
                 int64_t change);

// Returns zeros for a tenant that holds nothing.
TenantUsage UsageOf(const State& s, const std::string& tenant_id);

// Count a finished request as unfetched, or no longer. They ignore one without a result and one
// whose result was delivered.
void AddUnfetched(State& s, const RequestRow& row);
void RemoveUnfetched(State& s, const RequestRow& row);

// Adds or removes what an unfinished save reserves.
void ChangeReserved(State& s, const Request& request, int64_t sign);

// Counts what all tenants hold by walking over everything. For tests, which compare it with the
// counters.
std::map<std::string, TenantUsage> Recount(const State& s);

}  // namespace lathe::engine
