// Outcomes that workers report.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Repeated reports and reports of an earlier epoch change nothing.
void OnWorkerDone(State& s, const WorkerDone& event);

}  // namespace lathe::engine
