// Bounds on the work of one Step in a large service. The times are printed for people and not
// checked.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "services/engine/core/testing/scale_world.h"

namespace lathe::engine {
namespace {

// LATHE_SCALE_SAMPLERS: samplers of each session.
ScaleSizes Sizes() {
  ScaleSizes sizes;
  const char* const samplers = std::getenv("LATHE_SCALE_SAMPLERS");
  if (samplers != nullptr) sizes.samplers_per_session = std::atoll(samplers);
  return sizes;
}

CoreOptions Options(const ScaleSizes& sizes) {
  CoreOptions options;
  options.max_rows_per_tenant = options.max_rows_total = 2 * sizes.num_samples;
  options.max_sessions_per_tenant = options.max_samplers_per_tenant = 0;
  options.session_kept = 100 * options.session_timeout;
  return options;
}

template <typename IsOver>
int64_t TickUntil(ScaleWorld& w, const std::string& kind, const IsOver& is_over) {
  constexpr int64_t kMost = 5000;
  int64_t num_ticks = 0;
  for (; !is_over() && num_ticks < kMost; ++num_ticks) w.Tick(kind);
  return num_ticks;
}

TEST_CASE("Scale: one tenant's sessions expire at once", "[scale]") {
  const ScaleSizes sizes = Sizes();
  const CoreOptions options = Options(sizes);
  ScaleWorld w(sizes, options);
  w.AttachWorker("first worker attached");
  for (int64_t i = 0; i < sizes.num_samples; ++i) {
    const int64_t seq = 1 + i / sizes.num_sessions;
    if (w.SubmitSample(i % sizes.num_sessions, seq) != "") FAIL(w.last_error);
  }
  for (int i = 0; i < 200; ++i) w.CompleteSample(*w.running.begin());
  for (int i = 0; i < 10; ++i) CHECK(w.CreateModel(0, 10 + i) == "");
  for (int i = 0; i < 20; ++i) w.Tick("tick");
  w.LoseWorker();
  w.AttachWorker("worker attached");
  CHECK(w.running.size() == static_cast<size_t>(options.max_inflight_sequences));
  // Each of both looks at all samples that wait, once, in pieces.
  const int64_t num_pieces = (sizes.num_samples - 200) / options.max_swept;
  for (const char* const kind : {"worker lost, next piece", "worker attached, next piece"}) {
    CHECK(std::abs(static_cast<int64_t>(w.steps[kind].nanoseconds.size()) - num_pieces) <= 2);
  }
  for (int i = 0; i < 20; ++i) w.Tick("tick");

  w.now += options.session_timeout + kSecond;
  const auto num_ended = static_cast<size_t>(sizes.num_samples) + 10;
  const int64_t num_ticks =
      TickUntil(w, "tick, sessions silent", [&] { return w.num_completed.size() >= num_ended; });
  CHECK(w.num_completed.size() == num_ended);
  const int64_t num_samplers = sizes.num_sessions * sizes.samplers_per_session;
  CHECK(num_ticks <= 2 * (sizes.num_samples + num_samplers) / options.max_swept);
  const auto num_offloaded = static_cast<size_t>(sizes.num_live_models) + 10;
  TickUntil(w, "tick, sessions silent", [&] { return w.offloaded_models.size() >= num_offloaded; });
  CHECK(w.offloaded_models.size() == num_offloaded);

  w.now += options.session_kept;
  w.Tick("tick, sessions end");
  // A session that has ended takes nothing, though most of it is still to be released.
  REQUIRE_FALSE(w.finished_sessions.empty());
  CHECK(w.SubmitSample(std::stoll(w.finished_sessions.begin()->substr(1)), 1'000'000) ==
        "session_finished");
  const auto num_sessions = static_cast<size_t>(sizes.num_sessions);
  TickUntil(w, "tick, sessions end", [&] { return w.ended_sessions.size() >= num_sessions; });
  CHECK(w.ended_sessions.size() == num_sessions);
  CHECK(w.deleted_samplers.size() ==
        static_cast<size_t>(sizes.num_sessions * sizes.samplers_per_session));
  CHECK(w.unloaded_models.size() == static_cast<size_t>(sizes.num_models) + 10);
  CHECK(std::all_of(w.num_completed.begin(), w.num_completed.end(),
                    [](const auto& entry) { return entry.second == 1; }));
  w.Print();
  for (const auto& [kind, steps] : w.steps) {
    INFO(kind);
    if (kind == "start") continue;  // walks over everything, once for each leader
    CHECK(steps.max_effects <= 8 * options.max_swept);
    // These walk over the models on the group, once for each worker, but not over its samples.
    const bool is_of_group =
        kind == "first worker attached" || kind == "worker attached" || kind == "worker lost";
    CHECK(steps.max_visited < sizes.num_samples);
    if (is_of_group) continue;
    // No Step walks over all models, samplers or versions.
    CHECK(steps.max_visited <= 16 * options.max_swept);
    CHECK(steps.max_visited < sizes.num_models);
  }
}

}  // namespace
}  // namespace lathe::engine
