// Reference measurement: the memory read bandwidth of this machine.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Returns the exclusive-or of words [begin, end), so that the compiler cannot omit a read.
uint64_t ReadStream(std::span<const uint64_t> words, int64_t begin, int64_t end);

}  // namespace lathe::worker
