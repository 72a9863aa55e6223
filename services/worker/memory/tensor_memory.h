// Where torch's tensors on the CPU get their memory. Free of torch's headers.
#pragma once

#include <cstddef>

namespace lathe::worker {

// From here on tensors of one MiB and more get blocks of one BlockCache of the process. To be
// called in main, before other threads are there. Running out of memory throws
// c10::OutOfMemoryError.
void UseBlockCacheForTensors();

// BlockCache::EndPeriod and Clear of that cache; nothing where UseBlockCacheForTensors was not
// called. Any thread.
void EndTensorMemoryPeriod();
void FreeUnusedTensorMemory();

// Bytes that are kept for tensors to come; 0 where UseBlockCacheForTensors was not called. Any
// thread.
size_t UnusedTensorMemoryBytes();

}  // namespace lathe::worker
