// One Attach stream between an engine and a worker.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::engine::simulation {

class SimEngine;
class SimWorker;

// Each end learns late of the other's end, or by silence. Messages keep their order in each
// direction and are lost with the link.
struct Link {
  SimEngine* engine = nullptr;
  SimWorker* worker = nullptr;
  std::string group;
  int64_t rank = 0;
  int64_t stream_id = 0;  // stream id in the engine
  bool open_at_engine = true;
  bool open_at_worker = true;
  bool is_black_hole = false;  // accepts messages but delivers none
  int64_t last_to_engine = 0;  // arrival time of the newest message
  int64_t last_to_worker = 0;
};

}  // namespace lathe::engine::simulation
