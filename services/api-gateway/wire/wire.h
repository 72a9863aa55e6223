// Converts the SDK's protobuf bodies to lathe.v1, and results to the SDK's messages. Packed arrays
// are moved, never copied or expanded.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "protos/lathe/v1/types.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// Parses `body`, a serialized tinker_public.ForwardBackwardRequest. Returns InvalidArgument
// `bad_proto` with the byte and the field path of the damage. `request` then still has model_id and
// seq_id if they could be read.
absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request);

// Converts `message`. Named entries are sorted by name. loss_fn_config_v2 (field 7) replaces
// loss_fn_config (field 5) if it has entries.
v1::ForwardBackwardRequest FromTinker(tinker_public::ForwardBackwardRequest message);

// Keeps the order of datums and makes one ArrayRecord per run of equal trailing shape. Metrics that
// are not finite are left out, because they would spoil the client's sums.
tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result);

tinker_public::SampleResponse ToTinker(v1::SampleResult result);

}  // namespace lathe::gateway
