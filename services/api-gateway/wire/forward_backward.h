// Converts the SDK's forward_backward bodies from protobuf to lathe.v1. Packed arrays are moved,
// never copied or expanded.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// Parses `body`, a serialized tinker_public.ForwardBackwardRequest. Returns InvalidArgument
// `bad_proto` with the byte and the field path of the damage. `request` then still has model_id and
// seq_id if they could be read.
absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request);

// Converts `message`. Named entries are sorted by name. loss_fn_config_v2 (field 7) replaces
// loss_fn_config (field 5) if it has entries.
v1::ForwardBackwardRequest FromTinker(tinker_public::ForwardBackwardRequest message);

}  // namespace lathe::gateway
