// The engine's decisions as one deterministic state machine. It does no I/O and reads no clock. Its
// only randomness comes from the seed in Loaded. A recorded sequence of events therefore gives the
// same actions in any process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// Owns the ledger of every model, the queues of every group and the names of all live objects. Used
// by one thread. The first event is Loaded; Tick comes about every second.
//
// Guarantees to callers:
// - The core answers a call exactly once, in an Answer with its CallId, after its changes are
//   durable.
// - Every accepted request ends in one CompleteRequest. Once that is durable, NotifyDone follows,
//   then ForgetBody (if it had a body) and SendAck (if a worker executed it).
// - All effects of a Step wait for the Commit of that Step and for every earlier one. Sends,
//   answers and acknowledgements leave in the order in which they were decided.
// - A worker's commands carry the epoch of its group. Form or Adopt is the first command after an
//   attach.
class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Appends the resulting actions to `out`.
  void Step(const Event& event, std::vector<Action>* out);

  // Number of records that walks over models, samplers and versions, and placements of samples have
  // visited. Tests bound it for each Step.
  int64_t num_visited() const;
  // Counts what each tenant holds by walking over everything. Tests compare it with what
  // NotifyTenant published.
  std::map<std::string, TenantUsage> RecountUsage() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::engine
