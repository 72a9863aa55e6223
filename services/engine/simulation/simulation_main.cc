// lathe-engine-simulation: runs seeds and prints those that violate an invariant.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "services/engine/simulation/simulation.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine::simulation {
namespace {

struct Arguments {
  uint64_t from = 1;
  uint64_t to = 1000;  // exclusive
  double minutes = 0;  // 0: until the last seed
  int jobs = 1;
  bool trace = false;
  size_t trace_lines = 60;
  int64_t max_failures = 10;
  SeededBug bug = SeededBug::kNone;
};

void Print(uint64_t seed, const RunResult& result, bool with_trace) {
  for (const std::string& line : result.trace) {
    if (with_trace) std::printf("%s\n", line.c_str());
  }
  std::printf(
      "seed=%llu hash=%016llx requests=%lld leaders=%lld virtual_seconds=%lld %s\n",
      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(result.trace_hash),
      static_cast<long long>(result.num_requests), static_cast<long long>(result.num_leaders),
      static_cast<long long>(result.virtual_time / 1'000'000'000),
      result.violation.empty() ? "ok" : result.violation.c_str());
}

// Hands out seeds to threads and collects the results.
class Campaign {
 public:
  explicit Campaign(const Arguments& arguments) : arguments_(arguments), next_(arguments.from) {}

  int Run() {
    std::vector<std::jthread> threads;
    for (int i = 0; i < arguments_.jobs; ++i) threads.emplace_back([this] { Work(); });
    threads.clear();
    const double seconds = Elapsed();
    std::printf(
        "seeds=%lld failures=%lld requests=%lld digest=%016llx seconds=%.1f "
        "seeds_per_minute=%.0f\n",
        static_cast<long long>(num_seeds_), static_cast<long long>(num_failures_),
        static_cast<long long>(num_requests_), static_cast<unsigned long long>(digest_), seconds,
        60 * static_cast<double>(num_seeds_) / seconds);
    return num_failures_ > 0 ? 1 : 0;
  }

 private:
  double Elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

  void Work() {
    while (num_failures_ < arguments_.max_failures) {
      if (arguments_.minutes > 0 && Elapsed() > 60 * arguments_.minutes) return;
      const uint64_t seed = next_++;
      if (seed >= arguments_.to) return;
      const RunResult result = RunSeed({.seed = seed, .bug = arguments_.bug});
      ++num_seeds_;
      num_requests_ += result.num_requests;
      digest_ += Mix(seed, result.trace_hash);
      if (result.violation.empty()) continue;
      ++num_failures_;
      const RunResult again =
          RunSeed({.seed = seed, .bug = arguments_.bug, .max_trace_lines = arguments_.trace_lines});
      const std::lock_guard lock(print_);
      Print(seed, again, /*with_trace=*/true);
      std::fflush(stdout);
    }
  }

  const Arguments arguments_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next_;
  std::atomic<int64_t> num_seeds_ = 0;
  std::atomic<int64_t> num_failures_ = 0;
  std::atomic<int64_t> num_requests_ = 0;
  // Sum over the seeds, so that the order in which threads run them does not matter.
  std::atomic<uint64_t> digest_ = 0;
  std::mutex print_;
};

int Main(int argc, char** argv) {
  Arguments arguments;
  std::string seeds;
  std::string bug = "none";
  uint64_t seed = 0;
  CLI::App app("Runs the engine's core among simulated clients, workers, stores and networks.");
  app.add_option("--seed", seed, "run this one and print its last line");
  app.add_flag("--trace", arguments.trace, "with --seed: print every event and action");
  app.add_option("--seeds", seeds, "FROM:TO, the last one is left out; default 1:1000");
  app.add_option("--minutes", arguments.minutes, "stop after this long");
  app.add_option("--jobs", arguments.jobs, "threads")->check(CLI::Range(1, 256));
  app.add_option("--lines", arguments.trace_lines, "of the trace of a seed that fails");
  app.add_option("--max-failures", arguments.max_failures, "stop after so many");
  app.add_option("--bug", bug, "run with this seeded bug");
  CLI11_PARSE(app, argc, argv);
  const auto found = FindSeededBug(bug);
  if (!found) {
    std::fprintf(stderr, "bug is %s, known are:", bug.c_str());
    for (const SeededBug one : AllSeededBugs()) std::fprintf(stderr, " %s", NameOf(one).data());
    std::fprintf(stderr, "\n");
    return 64;
  }
  arguments.bug = *found;
  if (app.count("--seed") > 0) {
    const size_t lines = arguments.trace ? std::numeric_limits<size_t>::max() : 0;
    const RunResult result =
        RunSeed({.seed = seed, .bug = arguments.bug, .max_trace_lines = lines});
    Print(seed, result, arguments.trace);
    return result.violation.empty() ? 0 : 1;
  }
  if (arguments.minutes > 0) arguments.to = std::numeric_limits<uint64_t>::max();
  if (!seeds.empty()) {
    const size_t colon = seeds.find(':');
    if (colon == std::string::npos) {
      std::fprintf(stderr, "seeds is %s, must be FROM:TO\n", seeds.c_str());
      return 64;
    }
    arguments.from = std::stoull(seeds.substr(0, colon));
    arguments.to = std::stoull(seeds.substr(colon + 1));
  }
  return Campaign(arguments).Run();
}

}  // namespace
}  // namespace lathe::engine::simulation

int main(int argc, char** argv) { return lathe::engine::simulation::Main(argc, argv); }
