// Which part of a tensor a rank holds. Free of torch.
#pragma once

#include <cstdint>

namespace lathe::worker {

// A rank's place on axis tp, along which the tensors of a model are cut: `index` in [0, size).
struct TpPlace {
  int64_t index = 0;
  int64_t size = 1;  // 1: every tensor is whole
};

// Positions [begin, begin + size) of one dimension, and behind them `padding` that hold zero and
// are in no file: so all ranks hold the same number.
struct Shard {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t padding = 0;
  int64_t padded_size() const { return size + padding; }
};

}  // namespace lathe::worker
