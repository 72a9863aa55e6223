// The engine's decisions: one deterministic state machine. No I/O, no clock, no randomness but from
// the seed in Loaded; so a recorded sequence of events gives the same actions in any process.
#pragma once

#include <memory>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// Owns the ledger of every model, the queues of every group and the names of all live objects.
// Used by one thread. The first event is Loaded; Tick comes about every second.
//
// What a caller may rely on:
// - A call is answered exactly once, in an Answer with its CallId, after what it changed is
// durable.
// - Every accepted request ends in one CompleteRequest, followed (once durable) by NotifyDone,
//   ForgetBody (if it had a body) and SendAck (if a worker executed it).
// - All effects of a Step wait for the Commit of that Step, and for every earlier one: sends,
// answers
//   and acknowledgements leave in the order in which they were decided.
// - A worker's commands carry the epoch of its group; Form or Adopt comes first after an attach.
class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Appends what is to be done to `out`.
  void Step(const Event& event, std::vector<Action>* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::engine
