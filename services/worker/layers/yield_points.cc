#include "services/worker/layers/yield_points.h"

#include <utility>

namespace lathe::worker {
namespace {

// This thread's innermost callback. It is a thread-local and not a parameter of every layer,
// because results do not depend on yield points.
thread_local const std::function<void()>* current_yield = nullptr;

}  // namespace

YieldScope::YieldScope(std::function<void()> on_yield)
    : on_yield_(std::move(on_yield)), outer_(std::exchange(current_yield, &on_yield_)) {}

YieldScope::~YieldScope() { current_yield = outer_; }

bool HasYieldPoints() { return current_yield != nullptr; }

void Yield() {
  const std::function<void()>* const yield = std::exchange(current_yield, nullptr);
  (*yield)();
  current_yield = yield;
}

}  // namespace lathe::worker
