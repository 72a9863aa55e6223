// Measures the resident memory of this process.
#pragma once

#include <cstdint>

namespace lathe {

// Returns the resident bytes, including mapped files; 0 if the system does not report them.
int64_t ResidentMemoryBytes();

}  // namespace lathe
