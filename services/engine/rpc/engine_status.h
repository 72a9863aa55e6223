// What the engine says of itself to administrators.
#pragma once

#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

v1::GetStatusResponse DescribeEngine(Runtime& runtime, const KeyRing& keys, WorkerSender& workers);

// Unsaved models and pending requests at this moment.
v1::DrainResponse DescribeLeftover(Runtime& runtime);

}  // namespace lathe::engine
