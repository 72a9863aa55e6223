// The state of the service for its tenants: queues, groups, and their own models.
#pragma once

#include <cstdint>
#include <vector>

#include "protos/lathe/v1/accounts.pb.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Models of an answer if the request names no number, and at most.
inline constexpr int64_t kDefaultStatusModels = 100;
inline constexpr int64_t kMaxStatusModels = 1000;

// Returns what `caller` may see. Nothing of another tenant is in it but the sums of all queues.
// Ranks of groups are in it if the caller has the scope admin. `attached_groups` as in
// AdminService::AttachedGroups. Reads memory only; the cost grows with `max_models` and with the
// number of the tenant's models that have unfinished requests.
v1::GetServiceStatusResponse DescribeService(Runtime& runtime, const Caller& caller,
                                             int64_t max_models,
                                             const std::vector<v1::GroupStatus>& attached_groups);

// Returns the groups as a tenant sees them, without ranks.
std::vector<v1::GroupState> DescribeGroupStates(
    Runtime& runtime, const std::vector<v1::GroupStatus>& attached_groups);
void AddQueue(const QueueCount& count, v1::OperationQueue& proto);

}  // namespace lathe::engine
