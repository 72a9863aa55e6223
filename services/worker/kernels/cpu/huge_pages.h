// Memory for what is read from end to end again and again, as the weights of a model are.
#pragma once

#include <cstdint>
#include <memory>

namespace lathe::worker {

// `num_bytes` > 0 of zeros, aligned to a huge page and lying in huge pages where the system gives
// them: streams of reads are then half as fast again. Throws bad_alloc.
std::shared_ptr<void> AllocateHugePages(int64_t num_bytes);

}  // namespace lathe::worker
