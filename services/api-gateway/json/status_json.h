// The service's state for its tenants, as JSON.
#pragma once

#include "google/protobuf/repeated_field.h"
#include "protos/lathe/v1/accounts.pb.h"
#include "protos/lathe/v1/groups.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Texts that are empty become null. Ranks are left out of a group that has none.
//   {
//     "read_at": "2026-01-01T00:00:00Z", "version": "0.1.0", "term": 3, "refusal": null,
//     "queues": {"all": [{"operation": "sample", "waiting": 2, "running": 1}], "own": []},
//     "num_models": 1,
//     "models": [{"training_run_id": "…", "state": "ready", "applied_seq": 4, "pending": 2,
//                 "group": "default", "move_to": null, "reason": null}],
//     "groups": [{"group": "default", "state": "ready", "base_model": "…", "epoch": 1,
//                 "progress": null, "reason": null, "role": "both", "drain": null, "num_ranks": 1,
//                 "ranks": [{"rank": 0, "device": "cpu",
//                            "memory": {"used_bytes": 1, "limit_bytes": 2, "shares": [
//                                {"owner": "base", "used_bytes": 1, "limit_bytes": 2}]}}]}]
//   }
Json ServiceStatusToJson(const v1::GetServiceStatusResponse& response);

// Models of a group, for its operator.
//   {"num_models": 1, "pending": 2, "drain_left": null,
//    "models": [{"training_run_id": "…", "tenant": "lab", "state": "ready", "applied_seq": 4,
//                "unsaved": true, "pending": 2, "group": "g", "move_to": null, "reason": null}]}
Json GroupModelsToJson(const v1::ListGroupModelsResponse& response);

// Parts of it.
Json QueuesToJson(const google::protobuf::RepeatedPtrField<v1::OperationQueue>& queues);
Json GroupToJson(const v1::GroupState& group);

}  // namespace lathe::gateway
