// One Attach stream between an engine and a worker.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::engine::simulation {

class SimEngine;
class SimWorker;

// Each end learns of the other's end late, or by silence. Messages keep their order in each
// direction and are lost with the link.
struct Link {
  SimEngine* engine = nullptr;
  SimWorker* worker = nullptr;
  std::string group;
  int64_t rank = 0;
  int64_t stream_id = 0;  // of the engine
  bool open_at_engine = true;
  bool open_at_worker = true;
  bool is_black_hole = false;  // takes messages, delivers none
  int64_t last_to_engine = 0;  // when the newest message arrives
  int64_t last_to_worker = 0;
};

}  // namespace lathe::engine::simulation
