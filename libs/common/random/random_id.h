// Names nobody can guess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lathe {

// `num_bytes` bytes from the kernel's generator.
std::string RandomBytes(std::size_t num_bytes);

// `num_bytes` random bytes as lower-case hex, 2 * num_bytes characters.
std::string RandomId(std::size_t num_bytes);

// `length` random characters of [0-9A-Za-z], 5.95 bits each.
std::string RandomBase62(std::size_t length);

// For seeds and the like.
uint64_t RandomUint64();

}  // namespace lathe
