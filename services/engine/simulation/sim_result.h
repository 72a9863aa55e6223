// Bodies and results of the simulation: their meaning instead of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lathe::engine::simulation {

// Body of a request. Its client chooses the fields.
struct SimBody {
  std::string model_id;  // for a training request
  int64_t seq_id = 0;
  bool forward_only = false;
  uint64_t content = 0;
  bool fails = false;  // the worker fails it
  int64_t kills = 0;   // chance that its start kills the worker, per mille
};

// The engine, the store and the worker share it.
using SharedBody = std::shared_ptr<const SimBody>;

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
