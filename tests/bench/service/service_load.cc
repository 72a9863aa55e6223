// Load generator for a running gateway. Reads commands from stdin, one JSON object per line, and
// writes one answer per line to stdout. tests/bench/service/service_bench.py drives it.
//   {"op": "connect", "port": 8080, "api_key": K, "base_model": "null"}
//       "api_keys" in place of "api_key" gives trainers of several tenants.
//   {"op": "steps", "clients": 64, "seconds": 5, "pause_ms": 0, "tokens": 0}
//       Submits steps, each after a gradient of so many tokens, and awaits their results.
//   {"op": "open_idle_polls", "count": 8192}
//       Submits requests that wait for a seq_id that is never sent.
//   {"op": "poll"}
//       Starts to poll each of these requests repeatedly.
//   {"op": "unpark"}
//       Ends the polls and returns the number of answers.
//   {"op": "bodies", "megabytes": 5, "per_second": 20, "seconds": 10}
//       Sends large bodies while another client runs steps.
//   {"op": "flood", "name": "a", "api_key": K, "models": 16, "requests": 10000, "tokens": 512}
//       Submits many requests of one tenant without awaiting them.
//   {"op": "drain", "names": ["a", "b"], "seconds": 5}
//       Returns, by name, how many requests of these floods finish in that time.
//   {"op": "single", "api_key": K, "tokens": 512, "pause_ms": 1000}
//       Measures one training step of a new model, after the pause.
//   {"op": "train", "models": 32, "last_seq": 1000}
//       Runs two steps of each model, with time for a snapshot after each.
//   {"op": "submit", "tokens": 64}
//       Submits one request of each of these models.
//   {"op": "open_callers", "clients": 24, "api_key": K, "path": "sessions/search", "body": "{}"}
//       Starts clients that post this body again and again.
//   {"op": "close_callers"}
//       Ends them and returns the number of answers by status.
// Answers hold counts, and times in milliseconds (*_ms) or seconds.
#include <cstdio>
#include <iostream>
#include <string>

#include "libs/common/concurrency/mutex_checks.h"
#include "tests/bench/service/load.h"

int main() {
  lathe::DisableMutexChecks();
  lathe::bench::Load load;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << load.Run(nlohmann::json::parse(line)).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cerr << line << ": " << error.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
