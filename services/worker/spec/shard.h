// A rank's part of one dimension of a tensor.
#pragma once

#include <cstdint>

namespace lathe::worker {

// A rank's place on axis tp, along which a model's tensors are sharded: `index` in [0, size).
struct TpPlace {
  int64_t index = 0;
  int64_t size = 1;  // 1: every tensor is whole
};

// Positions [begin, begin + size) of one dimension, followed by `padding` positions that hold zero
// and exist in no file. The padding gives all ranks the same size.
struct Shard {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t padding = 0;
  int64_t padded_size() const { return size + padding; }
};

}  // namespace lathe::worker
