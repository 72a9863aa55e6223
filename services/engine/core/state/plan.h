// The choices fixed when a request is accepted, so that a replay cannot differ. Kept in its row as
// a lathe.v1.Plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/engine/core/events.h"

namespace lathe::engine {

struct Plan {
  OperationArgs args;
  // Refused at submission: it never runs, and its seq is consumed.
  bool refused = false;
  uint64_t seed = 0;
  int64_t max_tokens = 0;
  std::string model_id;             // model of the operation; empty for samples
  std::string dir;                  // checkpoint that is written or read
  std::string version_id;           // published by an unnamed save
  std::string sampling_session_id;  // created by an unnamed save
  std::string idempotency_key;      // Submit::idempotency_key
};

// Returns TrainArgs::batch_bytes; 0 for other plans and null.
int64_t BatchBytes(const Plan* plan);

std::string EncodePlan(const Plan& plan);
// Returns nullopt for bytes that are no plan, or one of an operation that only a later engine
// knows.
std::optional<Plan> DecodePlan(std::string_view bytes);
// Returns true for bytes in the form that plans had before they were messages. DecodePlan does not
// read them.
bool IsPlanBeforeProto(std::string_view bytes);

}  // namespace lathe::engine
