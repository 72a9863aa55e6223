// A session's trace as a file that Perfetto and chrome://tracing open.
#pragma once

#include <string>

#include "protos/lathe/v1/traces.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Returns the trace in the JSON object form of the Trace Event Format. Each model, sampling session
// and session is a process. Each request is a nestable asynchronous slice that contains its stages.
// Times count from the first request; otherData has that time. If requests may be missing,
// otherData and the first event say so.
std::string TraceToJson(const v1::OpenTraceResponse& trace);

// Returns the requests, newest first, with the seconds of their stages.
Json RunRequestsToJson(const v1::ListRunRequestsResponse& requests);

}  // namespace lathe::gateway
