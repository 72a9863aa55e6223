// Clients of a running gateway: commands on stdin, one JSON object a line, one answer a line on
// stdout. tests/bench/service/service_bench.py drives it.
//   {"op": "connect", "port": 8080, "api_key": K, "base_model": "null"}
//   {"op": "steps", "clients": 64, "seconds": 5, "pause_ms": 0}   no-op steps, submitted and
//   awaited
//   {"op": "park", "count": 8192}     requests that wait for one that never comes
//   {"op": "poll"}                    a poll of each of them, again and again
//   {"op": "unpark"}                  ends the polls: how many were answered
//   {"op": "bodies", "megabytes": 5, "per_second": 20, "seconds": 10}  with one client of steps
//   {"op": "flood", "name": "a", "api_key": K, "models": 16, "requests": 10000, "tokens": 512}
//   {"op": "drain", "names": ["a", "b"], "seconds": 5}   how many of these floods end meanwhile
//   {"op": "single", "api_key": K, "tokens": 512}        seconds of one step of another tenant
//   {"op": "train", "models": 32, "last_seq": 1000}  two steps of each, with a snapshot after each
//   {"op": "submit", "tokens": 64}    one request of each of these models
// Answers have counts, and times in milliseconds.
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
