// The core's record of a session.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "services/engine/store/rows.h"

namespace lathe::engine {

struct Session {
  SessionRow row;
  int64_t last_sign_at = 0;  // time of the last sign of life
  // True after session_timeout without a sign of life. No client waits for its samples.
  bool is_silent = false;
  // True if no model of the session is on a worker. Its samplers then become idle, some with each
  // Tick.
  bool is_offloaded = false;
  int64_t touch_written_at = 0;
  std::set<std::string> model_ids;
  std::set<std::string> busy_sampler_ids;
  std::set<std::string> idle_sampler_ids;
  std::map<int64_t, std::string> samples;  // its live samples: id by order of acceptance
  std::set<int64_t> sampler_seqs;          // used, or reserved by accepted saves
  int64_t num_live_requests = 0;
};

}  // namespace lathe::engine
