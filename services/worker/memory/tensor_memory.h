// Where torch's tensors on the CPU get their memory. Free of torch's headers.
#pragma once

namespace lathe::worker {

// From here on tensors of one MiB and more get blocks of one BlockCache of the process. To be
// called in main, before other threads are there. Running out of memory throws
// c10::OutOfMemoryError.
void UseBlockCacheForTensors();

// BlockCache::EndPeriod and Clear of that cache; nothing where UseBlockCacheForTensors was not
// called. Any thread.
void EndTensorMemoryPeriod();
void FreeUnusedTensorMemory();

}  // namespace lathe::worker
