// Rows that requests name. Live ones are in the directory, the tenant's earlier ones in the store.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns NotFound `not_found`; `id` is the value of the request's `field`.
absl::Status NoSuch(const char* what, const std::string& id, const char* field);

// NotFound: the tenant has no such row.
absl::StatusOr<ModelRow> FindModel(Runtime& runtime, const std::string& tenant_id,
                                   const std::string& model_id);
absl::StatusOr<SamplerRow> FindSampler(Runtime& runtime, const std::string& tenant_id,
                                       const std::string& sampling_session_id);

// Returns the state of the base model's queue: paused, with the reason of one of its groups, while
// none of them is ready.
QueueStatus QueueOfBaseModel(Runtime& runtime, const std::string& name);

}  // namespace lathe::engine
