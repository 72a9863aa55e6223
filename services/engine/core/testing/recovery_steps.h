// Steps for tests of what follows the death of a worker.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {

using Words = std::vector<std::string>;

inline void Step(CoreHarness& h, const std::string& model, int64_t seq) {
  h.Gradient(model, seq);
  h.Step(model, seq + 1);
  h.RunWorker();
}

inline void Snapshot(CoreHarness& h) {
  const size_t before = h.worker->Received<SendSnapshot>().size();
  h.Advance(11 * kSecond);
  h.RunWorker();
  REQUIRE(h.worker->Received<SendSnapshot>().size() == before + 1);
}

inline std::string NewestSnapshot(const CoreHarness& h) {
  return h.worker->Received<SendSnapshot>().back().snapshot_id;
}

// Replaces the worker by a new process.
inline void Replace(CoreHarness& h, bool engine_too = false) {
  static int number = 1;
  if (engine_too) h.RestartEngine();
  h.AttachWorker("new" + std::to_string(++number));
  h.RunWorker();
}

inline std::string Publish(CoreHarness& h, const std::string& model, int64_t seq,
                           int64_t sampler_seq, bool inflight = false) {
  SaveArgs args;
  args.sampling_session_seq_id = sampler_seq;
  args.inflight = inflight;
  const CallId call = h.Save(model, seq, args, OperationKind::kSaveWeightsForSampler);
  h.RunWorker();
  return h.ResultOf(call)->sampling_session_id;
}

}  // namespace lathe::engine
