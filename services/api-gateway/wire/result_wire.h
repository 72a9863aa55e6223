// Results of forward, forward_backward and sample as the SDK's protobuf messages.
#pragma once

#include "protos/lathe/v1/types.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// Datums in order, one ArrayRecord per run of equal trailing shape. Metrics that are not finite are
// left out: they would ruin the client's sums.
tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result);

tinker_public::SampleResponse ToTinker(v1::SampleResult result);

}  // namespace lathe::gateway
