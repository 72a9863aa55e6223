// Spans of requests for a collector, made of the times that SessionTraces knows.
#pragma once

#include <string>

#include "libs/common/tracing/tracer.h"
#include "services/engine/runtime/session_traces.h"

namespace lathe::engine {

// Records the span of a completed request, if it is sampled, and its stages as children:
//   accept   from its acceptance until that is durable
//   queue    until the latest dispatch to a worker
//   execute  until the worker's result arrived
//   commit   until the result is durable
// `base_model` may be empty. Never blocks.
void RecordRequest(Tracer& tracer, const RequestSpan& request, const std::string& base_model);

// Records the stage `deliver` of a completed request: until a caller has received the result. It
// begins where its parent ends.
void RecordDelivery(Tracer& tracer, const RequestSpan& request);

}  // namespace lathe::engine
