// A measure: how fast this machine reads memory, without the service around it.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Exclusive-or of the words [begin, end): a compiler cannot leave any of them out.
uint64_t ReadStream(std::span<const uint64_t> words, int64_t begin, int64_t end);

}  // namespace lathe::worker
