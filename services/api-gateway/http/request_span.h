// The span of a request to the gateway, over HTTP or gRPC.
#pragma once

#include <string>

#include "libs/common/tracing/tracer.h"
#include "services/api-gateway/http/connection.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/router.h"

namespace lathe::gateway {

// Sets the span of a request that may use `route`, as a child of its traceparent. Requests of
// public routes have none, because probes would drown the others. Neither have requests whose key
// nobody has accepted yet: strangers could fill the collector. Null `tracer`: does nothing.
void BeginSpan(Tracer* tracer, const Route& route, KeyState key_state, Request& request);

// Records the span of a request that was answered, if it has one. `request_id` as in Response.
void EndSpan(Tracer* tracer, const Request& request, const Answered& answered,
             const std::string& request_id);

}  // namespace lathe::gateway
