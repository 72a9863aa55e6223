// Random ids that cannot be guessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lathe {

// Returns `num_bytes` bytes from the kernel's generator.
std::string RandomBytes(std::size_t num_bytes);

// Returns `num_bytes` random bytes as lower-case hex, 2 * num_bytes characters.
std::string RandomId(std::size_t num_bytes);

// Returns `length` random characters of [0-9A-Za-z], 5.95 bits each.
std::string RandomBase62(std::size_t length);

// Returns a random number, e.g. for a seed.
uint64_t RandomUint64();

}  // namespace lathe
