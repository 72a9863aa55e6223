// Two groups of one base model, for tests.
#pragma once

#include <string>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {

constexpr int64_t kLost = 61 * kSecond;  // just above group_lost_timeout

// Group "g" is the harness's worker; group "h" is `other`.
struct Groups {
  CoreHarness h;
  FakeWorker* other;
  std::string session;

  explicit Groups(GroupRole role = GroupRole::kBoth, GroupRole other_role = GroupRole::kBoth) {
    h.role = role;
    h.AttachWorker();
    other = &h.AttachOther("h", other_role);
    session = h.NewSession();
  }
  std::string GroupOf(const std::string& model) const { return h.store.models().at(model).group; }
  // Ends the process of group "g" without a successor for `time`.
  void LoseFirst(int64_t time) {
    h.DetachWorker(/*process_gone=*/true);
    h.Advance(time);
    h.RunWorker();
  }
  // Ticks once a second and runs the workers to the end each time.
  void Pass(int64_t seconds = 5) {
    for (int64_t i = 0; i < seconds; ++i) {
      h.Tick();
      h.RunWorker();
    }
  }
};

inline CallId SampleOf(CoreHarness& h, const std::string& sampler, int64_t seq) {
  const CallId call = h.Sample(sampler, seq);
  h.RunWorker();
  return call;
}

}  // namespace lathe::engine
