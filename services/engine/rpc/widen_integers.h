// Numbers of a loss that came as integers: the SDK sends a list like [1, 0, 1] that the user made
// an array of as int64, and means the same floats.
#pragma once

#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

// Whether an input other than target_tokens has integers.
bool HasIntegerNumbers(const v1::ForwardBackwardRequest& request);

// The request with those inputs as float32. An input that holds an integer without an exact float32
// stays as it is.
v1::ForwardBackwardRequest WidenIntegers(v1::ForwardBackwardRequest request);

}  // namespace lathe::engine
