// Conversion of integer loss inputs to float32. The SDK sends a user's list such as [1, 0, 1] as
// int64, although floats are meant.
#pragma once

#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

// Returns true if an input other than target_tokens has an integer dtype.
bool HasIntegerNumbers(const v1::ForwardBackwardRequest& request);

// Returns the request with those inputs as float32. An input with an integer that float32 cannot
// represent exactly is not changed.
v1::ForwardBackwardRequest WidenIntegers(v1::ForwardBackwardRequest request);

}  // namespace lathe::engine
