// Converts results of forward, forward_backward and sample to the SDK's protobuf messages.
#pragma once

#include "protos/lathe/v1/types.pb.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {

// Keeps the order of datums and makes one ArrayRecord per run of equal trailing shape. Metrics that
// are not finite are left out, because they would spoil the client's sums.
tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result);

tinker_public::SampleResponse ToTinker(v1::SampleResult result);

}  // namespace lathe::gateway
