// The SDK's protobuf bodies <-> lathe.v1. Packed arrays are moved, never copied or expanded.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// A serialized tinker_public.ForwardBackwardRequest. InvalidArgument `bad_proto` with byte and
// field path; `request` then still has model_id and seq_id if they could be read.
absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request);

// Entries sorted by name; field 7 replaces field 5 when it is set.
v1::ForwardBackwardRequest FromTinker(tinker_public::ForwardBackwardRequest message);

}  // namespace lathe::gateway
