#include "libs/common/random/random_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace lathe {

std::string RandomBytes(std::size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  std::size_t filled = 0;
  while (filled < num_bytes) {
    const ssize_t got = getrandom(bytes.data() + filled, num_bytes - filled, 0);
    if (got < 0 && errno != EINTR) std::abort();  // only on a kernel without the call
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string RandomId(std::size_t num_bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  id.reserve(2 * num_bytes);
  for (const unsigned char byte : RandomBytes(num_bytes)) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

std::string RandomBase62(std::size_t length) {
  constexpr char kDigits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr unsigned kUnbiased = 248;  // largest multiple of 62 that fits in a byte
  std::string id;
  while (id.size() < length) {
    for (const unsigned char byte : RandomBytes(length - id.size())) {
      if (byte < kUnbiased) id += kDigits[byte % 62];
    }
  }
  return id;
}

uint64_t RandomUint64() {
  uint64_t value;
  std::memcpy(&value, RandomBytes(sizeof(value)).data(), sizeof(value));
  return value;
}

}  // namespace lathe
