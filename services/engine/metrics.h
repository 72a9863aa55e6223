// The engine's metrics page; docs/operations.md lists the metrics.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/metrics/host_watch.h"
#include "libs/common/tracing/tracer.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

// Counts what the runtime reports and reads everything else when the page is requested.
// Thread-safe.
class EngineMetrics {
 public:
  // Also shows what becomes of the spans of `tracer`, which may be null and must outlive the page.
  explicit EngineMetrics(const Tracer* tracer = nullptr);
  ~EngineMetrics();

  // Observers for Runtime::Options. This object must outlive the runtime.
  Runtime::Options::Observers MakeObservers();
  // Adds the state of both arguments to the page until HideState. Both must live until then.
  void ShowState(Runtime& runtime, WorkerSender& workers);
  // Sets the function that says if this engine still leads. It is called while state is shown;
  // without it, the engine counts as the leader.
  void SetLeadershipCheck(std::function<bool()> leads);
  void HideState();
  // Also shows what `watch` sees.
  void SetHostWatch(std::unique_ptr<HostWatch> watch);
  // Records the age of the oldest open transaction in a shared database, as TransactionWatch finds
  // it. Initially 0.
  void OnOldestTransaction(absl::Duration age);

  std::shared_ptr<prometheus::Registry> registry() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lathe::engine
