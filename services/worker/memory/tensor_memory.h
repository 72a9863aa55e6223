// The allocator of torch's CPU tensors. Does not include torch's headers.
#pragma once

#include <cstddef>

namespace lathe::worker {

// Makes tensors of 1 MiB to 1 GiB use blocks of one BlockCache of the process from now on. Call it
// in main, before other threads exist. Running out of memory throws c10::OutOfMemoryError.
void UseBlockCacheForTensors();

// Call BlockCache::EndPeriod and Clear of that cache. They do nothing before
// UseBlockCacheForTensors. Any thread.
void EndTensorMemoryPeriod();
void FreeUnusedTensorMemory();

// Bytes cached for later tensors; 0 before UseBlockCacheForTensors. Any thread.
size_t UnusedTensorMemoryBytes();

}  // namespace lathe::worker
