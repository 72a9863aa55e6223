#include "services/engine/core_watch.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

class Watched {
 public:
  void Look(absl::Duration idle_time) {
    idle_time_ = idle_time;
    watch_.Look();
  }
  absl::Duration Period() const { return watch_.Period(); }
  bool is_stuck() const { return is_stuck_; }

 private:
  absl::Duration idle_time_;
  bool is_stuck_ = false;
  CoreWatch watch_{absl::Seconds(30), [this] { return idle_time_; }, [this] { is_stuck_ = true; }};
};

TEST_CASE("CoreWatch: a core that does nothing for the limit is stuck", "[engine]") {
  Watched watched;
  CHECK(watched.Period() == absl::Seconds(3));
  for (int look = 1; look < 10; ++look) watched.Look(look * watched.Period());
  CHECK_FALSE(watched.is_stuck());
  watched.Look(absl::Seconds(30));
  CHECK(watched.is_stuck());
}

TEST_CASE("CoreWatch: a core that handles its ticks is not", "[engine]") {
  Watched watched;
  for (int look = 0; look < 100; ++look) watched.Look(absl::Milliseconds(900));
  CHECK_FALSE(watched.is_stuck());
}

TEST_CASE("CoreWatch: a process that was stopped for an hour goes on", "[engine]") {
  Watched watched;
  watched.Look(absl::Hours(1));
  watched.Look(absl::Hours(1));
  watched.Look(absl::ZeroDuration());
  CHECK_FALSE(watched.is_stuck());
}

}  // namespace
}  // namespace lathe::engine
