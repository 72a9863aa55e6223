// Converts the SDK's protobuf bodies to lathe.v1, and results to the SDK's messages. Packed arrays
// are moved, never copied or expanded.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "protos/lathe/v1/types.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// Called with the bytes that the parts of a body will take once they are parsed (WireSize). An
// error ends the reading.
using AdmitParts = absl::FunctionRef<absl::Status(int64_t part_bytes)>;
inline absl::Status AdmitAll(int64_t) { return absl::OkStatus(); }

// Reads `body`, a serialized tinker_public.ForwardBackwardRequest. Calls `admit` before it parses,
// and parses one datum at a time, so that the SDK's messages never exist as a whole. Errors are
// those of MeasureProto and of `admit`. `request`, which may lie in an arena, then still has
// model_id and seq_id if they could be read. Named entries are sorted by name. loss_fn_config_v2
// (field 7) replaces loss_fn_config (field 5) if it has entries.
absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request,
                                     AdmitParts admit = AdmitAll);

// Keeps the order of datums and makes one ArrayRecord per run of equal trailing shape. Metrics that
// are not finite are left out, because they would spoil the client's sums.
tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result);

tinker_public::SampleResponse ToTinker(v1::SampleResult result);

}  // namespace lathe::gateway
