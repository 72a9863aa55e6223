// Memory of this process.
#pragma once

#include <cstdint>

namespace lathe {

// Bytes that are in memory, files that are mapped included; 0 where the system does not say.
int64_t ResidentMemoryBytes();

}  // namespace lathe
