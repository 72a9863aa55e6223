// lathe-core-replay FILE: steps a core through an event log and prints the digest of its actions.
#include <cstdio>

#include "services/engine/core/event_log.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: lathe-core-replay FILE\n");
    return 64;
  }
  const auto result = lathe::engine::ReplayEventLog(argv[1]);
  if (!result.ok()) {
    std::fprintf(stderr, "lathe-core-replay: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("events=%lld actions=%lld digest=%s\n", static_cast<long long>(result->num_events),
              static_cast<long long>(result->num_actions), result->digest.c_str());
  return 0;
}
