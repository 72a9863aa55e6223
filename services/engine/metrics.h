// The engine's page of metrics; docs/operations.md lists them.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

// Counts what the runtime reports; the rest is read when the page is asked for. Thread-safe.
class EngineMetrics {
 public:
  EngineMetrics();
  ~EngineMetrics();

  // For Runtime::Options. This must outlive that runtime.
  Runtime::Options::Observers MakeObservers();
  // What else is shown, from now until HideState; both must live that long.
  void ShowState(Runtime& runtime, WorkerSender& workers);
  // Whether this engine, once its state is shown, is still the leader; without it, it is.
  void AskLeadership(std::function<bool()> leads);
  void HideState();
  // Of a database that others use too, as TransactionWatch finds it; 0 until then.
  void OnOldestTransaction(absl::Duration age);

  std::shared_ptr<prometheus::Registry> registry() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lathe::engine
