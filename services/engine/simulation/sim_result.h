// Bodies and results as the simulation knows them: what they mean instead of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lathe::engine::simulation {

// The body of a request, chosen by its client.
struct SimBody {
  std::string model_id;  // of a training request
  int64_t seq_id = 0;
  bool forward_only = false;
  uint64_t content = 0;
  bool fails = false;  // its worker finds it wrong
  int64_t kills = 0;   // its worker when it starts, per mille
};

// Shared by the engine, the store and the worker that runs it.
using SharedBody = std::shared_ptr<const SimBody>;

struct SimResult {
  bool failed = false;
  std::string code;  // of a failure
  std::string message;
  uint64_t weights = 0;  // hash of those that made it, or of those that a step made
  std::string model_id;
  std::string path;
  std::string sampling_session_id;

  friend bool operator==(const SimResult&, const SimResult&) = default;
};

}  // namespace lathe::engine::simulation
