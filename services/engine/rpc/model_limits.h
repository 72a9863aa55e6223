// Limits of a base model, which validation checks.
#pragma once

#include <cstdint>

namespace lathe::engine {

struct ModelLimits {
  int64_t max_context_length = 0;
  int64_t vocab_size = 0;
  int64_t max_lora_rank = 0;
};

}  // namespace lathe::engine
