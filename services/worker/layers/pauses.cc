#include "services/worker/layers/pauses.h"

#include <utility>

namespace lathe::worker {
namespace {

// This thread's innermost callback. It is a thread-local and not a parameter of every layer,
// because results do not depend on yield points.
thread_local const std::function<void()>* current_pause = nullptr;

}  // namespace

PauseScope::PauseScope(std::function<void()> on_pause)
    : on_pause_(std::move(on_pause)), outer_(std::exchange(current_pause, &on_pause_)) {}

PauseScope::~PauseScope() { current_pause = outer_; }

bool HasPauses() { return current_pause != nullptr; }

void Pause() {
  const std::function<void()>* const pause = std::exchange(current_pause, nullptr);
  (*pause)();
  current_pause = pause;
}

}  // namespace lathe::worker
