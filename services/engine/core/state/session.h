// The core's record of a session.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "services/engine/store/rows.h"

namespace lathe::engine {

struct Session {
  SessionRow row;
  int64_t last_sign_at = 0;  // time of the last sign of life
  // True after session_timeout without a sign of life. No client waits for its samples.
  bool is_silent = false;
  // True if nothing of the session is on a worker. Its samplers then do not pin files.
  bool is_offloaded = false;
  int64_t touch_written_at = 0;
  std::set<std::string> model_ids;
  std::set<std::string> sampler_ids;
  std::set<int64_t> sampler_seqs;  // used, or reserved by accepted saves
  int64_t num_live_requests = 0;
};

}  // namespace lathe::engine
