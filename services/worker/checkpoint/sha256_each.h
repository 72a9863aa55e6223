// SHA-256 of many messages at a time. Free of torch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lathe::worker {

struct Message {
  const void* data = nullptr;
  size_t num_bytes = 0;
};

// 64 lower-case hex digits for each. Where the CPU has instructions for SHA, two messages go side
// by side: the rounds of one wait for each other, so that together they take little longer.
std::vector<std::string> Sha256Each(const std::vector<Message>& messages);

}  // namespace lathe::worker
