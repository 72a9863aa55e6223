// The engine's status for administrators.
#pragma once

#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

v1::GetStatusResponse DescribeEngine(Runtime& runtime, const KeyRing& keys, WorkerSender& workers);

// Returns the models that are unsaved and the requests that are pending now.
v1::DrainResponse DescribeLeftover(Runtime& runtime);

}  // namespace lathe::engine
