// Results of the simulation: their meaning instead of bytes.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::engine::simulation {

// Result of a request, or the error of one that failed.
struct SimResult {
  bool failed = false;
  std::string code;  // set for a failure
  std::string message;
  uint64_t weights = 0;  // hash of the weights it used, or of those that a step made
  std::string model_id;
  std::string path;
  std::string sampling_session_id;

  friend bool operator==(const SimResult&, const SimResult&) = default;
};

}  // namespace lathe::engine::simulation
