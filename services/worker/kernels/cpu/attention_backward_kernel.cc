#include "services/worker/kernels/cpu/attention_backward_kernel.h"

#include "services/worker/kernels/cpu/attention_tile.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the parts this file is made of
using Gradients = AttentionBackwardPart::Gradients;

static_assert(kAttentionKeyBlock == kKeyBlock);

// Query rows that are taken together: long chains for dk and dv, and all they need in the cache.
constexpr int64_t kChunkRows = 96;

// Scratch memory, cut to pieces. One block of keys at a time, one chunk of query rows with it.
struct Room {
  float* keys_transposed;    // [kKeyVectors, d, kLanes]
  float* values_transposed;  // same
  float* keys;               // [kKeyBlock, padded d], scaled
  float* dk;                 // [kKeyBlock, padded d]
  float* dv;                 // same
  float* q;                  // [kChunkRows, padded d], scaled
  float* dout;               // same
  float* dq;                 // [kTileRows, padded d]
  float* weights;            // [kChunkRows, kKeyBlock]
  float* dscores;            // same
  int64_t padded_dim;
};

Room Carve(float* scratch, int64_t head_dim) {
  Room room = {};
  room.padded_dim = RoundUp(head_dim, kLanes);
  const auto take = [&](int64_t num_rows, int64_t width) {
    float* part = scratch;
    scratch += num_rows * width;
    return part;
  };
  room.keys_transposed = take(kKeyBlock, room.padded_dim);
  room.values_transposed = take(kKeyBlock, room.padded_dim);
  room.keys = take(kKeyBlock, room.padded_dim);
  room.dk = take(kKeyBlock, room.padded_dim);
  room.dv = take(kKeyBlock, room.padded_dim);
  room.q = take(kChunkRows, room.padded_dim);
  room.dout = take(kChunkRows, room.padded_dim);
  room.dq = take(kTileRows, room.padded_dim);
  room.weights = take(kChunkRows, kKeyBlock);
  room.dscores = take(kChunkRows, kKeyBlock);
  return room;
}

// A block of keys and what of the query rows is computed with it.
struct Block {
  int64_t begin;  // position of the first key
  int64_t num_keys;
  bool has_dq;
  bool has_dkv;
};

LATHE_INLINE void LoadKeys(const AttentionBackwardTask& task, const Block& block,
                           const Room& room) {
  const int64_t d = task.head_dim;
  PackTransposed(task.k.at(block.begin, 0), task.k.row_stride, block.num_keys, d,
                 room.keys_transposed);
  PackTransposed(task.v.at(block.begin, 0), task.v.row_stride, block.num_keys, d,
                 room.values_transposed);
  for (int64_t i = 0; block.has_dq && i < block.num_keys; ++i) {
    CopyScaled(task.k.at(block.begin + i, 0), task.scale, d, room.padded_dim,
               room.keys + i * room.padded_dim);
  }
  if (!block.has_dkv) return;
  std::fill(room.dk, room.dk + kKeyBlock * room.padded_dim, 0.0f);
  std::fill(room.dv, room.dv + kKeyBlock * room.padded_dim, 0.0f);
}

LATHE_INLINE void LoadQueries(const AttentionBackwardTask& task, int64_t row, int64_t num_rows,
                              const Room& room) {
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = (row + i) / task.group;
    const int64_t head = (row + i) % task.group;
    CopyScaled(task.q.at(position, head), task.scale * kLog2E, task.head_dim, room.padded_dim,
               room.q + i * room.padded_dim);
    CopyScaled(task.dout.at(position, head), 1.0f, task.head_dim, room.padded_dim,
               room.dout + i * room.padded_dim);
  }
}

// Scores of one row to weights P, and what is in `dscores`, dL/dP, to dL/dS = P (dL/dP - delta).
// Keys from `limit` on lie in the row's future.
LATHE_INLINE void DifferentiateRow(float log_sum, float delta, int64_t limit, float* scores,
                                   float* dscores) {
#pragma GCC unroll 4
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    const Words is_past = kLaneIndex < static_cast<int32_t>(limit - v * kLanes);
    // Nothing was computed for what lies beyond the tile's last key.
    const Lanes weights = (Lanes)((Words)Exp2(Load(scores + v * kLanes) - log_sum) & is_past);
    const Lanes dweights = Load(dscores + v * kLanes) - delta;
    Store(scores + v * kLanes, weights);
    Store(dscores + v * kLanes, (Lanes)((Words)(weights * dweights) & is_past));
  }
}

// What the block's first `num_keys` keys add to dq of the rows [row, row + num_rows).
template <typename Target>
LATHE_INLINE void AddToQueries(const AttentionBackwardTask& task, const Block& block,
                               const Room& room, int64_t row, int64_t num_rows, int64_t num_keys,
                               const float* dscores) {
  const bool is_first = block.begin == 0;
  const auto row_bytes = static_cast<size_t>(task.head_dim) * sizeof(float);
  // Rows that do not fill whole vectors are added up elsewhere.
  const bool is_apart = task.head_dim != room.padded_dim;
  float* rows[kTileRows] = {};
  float* sums[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) {
    rows[i] = task.dq.at((row + i) / task.group, (row + i) % task.group);
    sums[i] = is_apart ? room.dq + i * room.padded_dim : rows[i];
    if (is_apart && !is_first) std::memcpy(sums[i], rows[i], row_bytes);
  }
  AddRows<Target>({dscores, kKeyBlock, 1}, num_rows, room.keys, room.padded_dim, num_keys,
                  room.padded_dim, is_first, sums);
  for (int64_t i = 0; is_apart && i < num_rows; ++i) std::memcpy(rows[i], sums[i], row_bytes);
}

// Rows [row, row + num_rows) of the task, which are those from `place` on of the chunk.
template <typename Target>
LATHE_INLINE void DifferentiateTile(const AttentionBackwardTask& task, const Block& block,
                                    const Room& room, int64_t row, int64_t num_rows,
                                    int64_t place) {
  const auto limit_of = [&](int64_t r) LATHE_INLINE_LAMBDA {
    return std::min(block.num_keys, r / task.group + 1 - block.begin);
  };
  const int64_t num_keys = limit_of(row + num_rows - 1);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  float* weights = room.weights + place * kKeyBlock;
  float* dscores = room.dscores + place * kKeyBlock;
  const float* keys[kKeyVectors];
  const float* values[kKeyVectors];
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    keys[v] = room.keys_transposed + v * kLanes * task.head_dim;
    values[v] = room.values_transposed + v * kLanes * task.head_dim;
  }
  ScoreTile<Target>(room.q + place * room.padded_dim, room.padded_dim, num_rows, keys, values,
                    num_vectors, task.head_dim, weights);
  ScoreTile<Target>(room.dout + place * room.padded_dim, room.padded_dim, num_rows, values, values,
                    num_vectors, task.head_dim, dscores);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = (row + i) / task.group;
    const int64_t head = (row + i) % task.group;
    DifferentiateRow(*task.log_sums.at(position, head), *task.deltas.at(position, head),
                     limit_of(row + i), weights + i * kKeyBlock, dscores + i * kKeyBlock);
  }
  if (block.has_dq) AddToQueries<Target>(task, block, room, row, num_rows, num_keys, dscores);
}

// What the chunk's rows, the first of them `row`, add to dk and dv.
template <typename Target>
LATHE_INLINE void AddToKeys(const AttentionBackwardTask& task, const Block& block, const Room& room,
                            int64_t row, int64_t num_rows) {
  for (int64_t key = 0; key < block.num_keys; key += kTileRows) {
    const int64_t num_keys = std::min<int64_t>(kTileRows, block.num_keys - key);
    // Earlier rows see none of these keys.
    const int64_t skipped = std::max<int64_t>(0, (block.begin + key) * task.group - row);
    if (skipped >= num_rows) return;
    float* dk[kTileRows] = {};
    float* dv[kTileRows] = {};
    for (int64_t i = 0; i < num_keys; ++i) {
      dk[i] = room.dk + (key + i) * room.padded_dim;
      dv[i] = room.dv + (key + i) * room.padded_dim;
    }
    const int64_t corner = skipped * kKeyBlock + key;
    const int64_t offset = skipped * room.padded_dim;
    const int64_t n = num_rows - skipped;
    AddRows<Target>({room.weights + corner, 1, kKeyBlock}, num_keys, room.dout + offset,
                    room.padded_dim, n, room.padded_dim, /*is_first=*/false, dv);
    AddRows<Target>({room.dscores + corner, 1, kKeyBlock}, num_keys, room.q + offset,
                    room.padded_dim, n, room.padded_dim, /*is_first=*/false, dk);
  }
}

// Queries were scaled by scale * log2(e), dk wants the scale alone.
LATHE_INLINE void StoreKeys(const AttentionBackwardTask& task, const Block& block,
                            const Room& room) {
  for (int64_t i = 0; i < block.num_keys; ++i) {
    CopyScaled(room.dk + i * room.padded_dim, kLn2, task.head_dim, task.head_dim,
               task.dk.at(block.begin + i, 0));
    CopyScaled(room.dv + i * room.padded_dim, 1.0f, task.head_dim, task.head_dim,
               task.dv.at(block.begin + i, 0));
  }
}

template <typename Target>
LATHE_INLINE void BackwardPart(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                               float* scratch) {
  const Room room = Carve(scratch, task.head_dim);
  const bool has_dq = part.gradients != Gradients::kKeys;
  const bool has_dkv = part.gradients != Gradients::kQueries;
  const int64_t row_begin = has_dkv ? 0 : part.begin * task.group;
  const int64_t row_end = (has_dkv ? task.num_positions : part.end) * task.group;
  for (int64_t begin = has_dkv ? part.begin : 0; begin < part.end; begin += kKeyBlock) {
    const Block block = {.begin = begin,
                         .num_keys = std::min(kKeyBlock, part.end - begin),
                         .has_dq = has_dq,
                         .has_dkv = has_dkv};
    LoadKeys(task, block, room);
    for (int64_t row = std::max(row_begin, begin * task.group); row < row_end; row += kChunkRows) {
      const int64_t num_rows = std::min(kChunkRows, row_end - row);
      LoadQueries(task, row, num_rows, room);
      for (int64_t i = 0; i < num_rows; i += kTileRows) {
        DifferentiateTile<Target>(task, block, room, row + i,
                                  std::min<int64_t>(kTileRows, num_rows - i), i);
      }
      if (has_dkv) AddToKeys<Target>(task, block, room, row, num_rows);
    }
    if (has_dkv) StoreKeys(task, block, room);
  }
}

LATHE_WIDE_TARGET void BackwardWide(const AttentionBackwardTask& task,
                                    const AttentionBackwardPart& part, float* scratch) {
  BackwardPart<WideTarget>(task, part, scratch);
}

LATHE_NARROW_CLONES
void BackwardNarrow(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch) {
  BackwardPart<NarrowTarget>(task, part, scratch);
}

}  // namespace

LATHE_SIMD_CLONES
float AttentionDelta(const float* out, const float* dout, int64_t head_dim) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + kLanes <= head_dim; i += kLanes) sums += Load(out + i) * Load(dout + i);
  float sum = SumOfLanes(sums)[0];
  for (; i < head_dim; ++i) sum += out[i] * dout[i];
  return sum;
}

int64_t AttentionBackwardScratchSize(int64_t head_dim) {
  return (5 * kKeyBlock + 2 * kChunkRows + kTileRows) * RoundUp(head_dim, kLanes) +
         2 * kChunkRows * kKeyBlock;
}

void AttendBackward(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch) {
  return HasWideVectors() ? BackwardWide(task, part, scratch) : BackwardNarrow(task, part, scratch);
}

}  // namespace lathe::worker
