// What is fixed when a request is accepted, so that running it again cannot differ: kept in its
// row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/engine/core/events.h"

namespace lathe::engine {

struct Plan {
  OperationArgs args;
  // Refused at submission: never runs, its seq is consumed.
  bool refused = false;
  uint64_t seed = 0;
  int64_t max_tokens = 0;
  std::string model_id;             // that the operation acts on; empty for samples
  std::string dir;                  // of the checkpoint that is written or read
  std::string version_id;           // that an unnamed save publishes
  std::string sampling_session_id;  // that an unnamed save creates
};

std::string EncodePlan(const Plan& plan);
// nullopt: another version of the engine wrote it.
std::optional<Plan> DecodePlan(std::string_view bytes);

}  // namespace lathe::engine
