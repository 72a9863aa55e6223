// The core's record of a request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "services/engine/core/state/plan.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

struct Request {
  RequestRow row;              // its plan is left empty, see `plan`
  std::unique_ptr<Plan> plan;  // set until the request ends
  std::string session_id;
  std::string group;  // runs the request; empty until a group is chosen. Change it with SetGroup
  std::string notified_group;  // group last sent to its caller
  int64_t order = 0;           // order of acceptance
  // Quarantined: it ran during a crash of its worker, and runs alone until it ends.
  bool is_quarantined = false;
  int64_t num_crashes_alone = 0;   // crashes of workers that ran only this request
  int64_t num_state_refusals = 0;  // refusals by workers whose state of its model differed
  int64_t num_samples = 0;
  int64_t reserved_bytes = 0;  // expected size of its checkpoint; 0: none, or unknown
  std::string idempotency_key;
  std::string outcome;  // outcome for its row, set at its end
  // Refused at submission: it never runs.
  bool refused = false;

  bool live() const { return plan != nullptr; }
};

}  // namespace lathe::engine
