// A session's trace as a file that Perfetto and chrome://tracing open.
#pragma once

#include <string>

#include "protos/lathe/v1/traces.pb.h"

namespace lathe::gateway {

// The JSON object form of the Trace Event Format. One process per model, sampling session and
// session; each request is a nestable asynchronous slice with its stages inside. Times count from
// the first of them; otherData says when that was and, like the first event, what is missing.
std::string TraceToJson(const v1::OpenTraceResponse& trace);

}  // namespace lathe::gateway
