#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"

#include "services/worker/kernels/cpu/attention/attention_tile.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the building blocks of this file
using Gradients = AttentionBackwardPart::Gradients;

static_assert(kAttentionKeyBlock == kKeyBlock);

// Query rows per chunk: long chains for dk and dv, and all data in the cache.
constexpr int64_t kChunkRows = 96;

// Scratch memory in pieces. Query rows are gathered once, because in the tensors they are pages
// apart and every block of keys reads them.
struct Room {
  float* keys_transposed;    // [kKeyVectors, d, kLanes]
  float* values_transposed;  // same
  float* keys;               // [kKeyBlock, padded d], scaled
  float* dk;                 // [kKeyBlock, padded d]
  float* dv;                 // same
  float* q;                  // [rows of the part, padded d], scaled
  float* dout;               // same
  float* dq;                 // same
  float* weights;            // [kChunkRows, kKeyBlock]
  float* dscores;            // same
  int64_t padded_dim;
};

Room Carve(float* scratch, int64_t num_rows, int64_t head_dim) {
  Room room = {};
  room.padded_dim = RoundUp(head_dim, kLanes);
  const auto take = [&](int64_t height, int64_t width) {
    float* part = scratch;
    scratch += height * width;
    return part;
  };
  room.keys_transposed = take(kKeyBlock, room.padded_dim);
  room.values_transposed = take(kKeyBlock, room.padded_dim);
  room.keys = take(kKeyBlock, room.padded_dim);
  room.dk = take(kKeyBlock, room.padded_dim);
  room.dv = take(kKeyBlock, room.padded_dim);
  room.weights = take(kChunkRows, kKeyBlock);
  room.dscores = take(kChunkRows, kKeyBlock);
  room.q = take(num_rows, room.padded_dim);
  room.dout = take(num_rows, room.padded_dim);
  room.dq = take(num_rows, room.padded_dim);
  return room;
}

// A block of keys and the gradients to compute with it.
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

// Rows [begin, end) of a part's query rows, which are ordered by position, then head.
struct Rows {
  int64_t begin;
  int64_t end;
  int64_t group;

  int64_t position(int64_t row) const { return row / group; }
  int64_t head(int64_t row) const { return row % group; }
};

LATHE_INLINE void LoadQueries(const AttentionBackwardTask& task, const Rows& rows,
                              const Room& room) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t place = (row - rows.begin) * room.padded_dim;
    CopyScaled(task.q.at(rows.position(row), rows.head(row)), task.scale * kLog2E, task.head_dim,
               room.padded_dim, room.q + place);
    CopyScaled(task.dout.at(rows.position(row), rows.head(row)), 1.0f, task.head_dim,
               room.padded_dim, room.dout + place);
  }
}

LATHE_INLINE void StoreQueries(const AttentionBackwardTask& task, const Rows& rows,
                               const Room& room) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::memcpy(task.dq.at(rows.position(row), rows.head(row)),
                room.dq + (row - rows.begin) * room.padded_dim,
                static_cast<size_t>(task.head_dim) * sizeof(float));
  }
}

// Turns one row's scores into weights P, and `dscores` from dL/dP into dL/dS = P (dL/dP - delta).
// Keys from `limit` on are in the row's future.
LATHE_INLINE void DifferentiateRow(float log_sum, float delta, int64_t limit, float* scores,
                                   float* dscores) {
#pragma GCC unroll 4
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    const Words is_past = kLaneIndex < static_cast<int32_t>(limit - v * kLanes);
    // Values past the tile's last key were not computed.
    const Lanes weights = (Lanes)((Words)Exp2(Load(scores + v * kLanes) - log_sum) & is_past);
    const Lanes dweights = Load(dscores + v * kLanes) - delta;
    Store(scores + v * kLanes, weights);
    Store(dscores + v * kLanes, (Lanes)((Words)(weights * dweights) & is_past));
  }
}

// Computes weights and score gradients of rows [row, row + num_rows), which begin at row `place` of
// the chunk, and adds to dq.
template <typename Target>
LATHE_INLINE void DifferentiateTile(const AttentionBackwardTask& task, const Rows& rows,
                                    const Block& block, const Room& room, int64_t row,
                                    int64_t num_rows, int64_t place) {
  const auto limit_of = [&](int64_t r) LATHE_INLINE_LAMBDA {
    return std::min(block.num_keys, rows.position(r) + 1 - block.begin);
  };
  const int64_t num_keys = limit_of(row + num_rows - 1);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const int64_t offset = (row - rows.begin) * room.padded_dim;
  float* weights = room.weights + place * kKeyBlock;
  float* dscores = room.dscores + place * kKeyBlock;
  const float* keys[kKeyVectors];
  const float* values[kKeyVectors];
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    keys[v] = room.keys_transposed + v * kLanes * task.head_dim;
    values[v] = room.values_transposed + v * kLanes * task.head_dim;
  }
  ScoreTile<Target>(room.q + offset, room.padded_dim, num_rows, keys, values, num_vectors,
                    task.head_dim, weights);
  ScoreTile<Target>(room.dout + offset, room.padded_dim, num_rows, values, values, num_vectors,
                    task.head_dim, dscores);
  float* dq[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = rows.position(row + i);
    const int64_t head = rows.head(row + i);
    DifferentiateRow(*task.log_sums.at(position, head), *task.deltas.at(position, head),
                     limit_of(row + i), weights + i * kKeyBlock, dscores + i * kKeyBlock);
    dq[i] = room.dq + offset + i * room.padded_dim;
  }
  if (!block.has_dq) return;
  AddRows<Target>({dscores, kKeyBlock, 1}, num_rows, room.keys, room.padded_dim, num_keys,
                  room.padded_dim, block.begin == 0, dq);
}

// Adds the contribution of the chunk of rows from `row` on to dk and dv.
template <typename Target>
LATHE_INLINE void AddToKeys(const Rows& rows, const Block& block, const Room& room, int64_t row,
                            int64_t num_rows) {
  for (int64_t key = 0; key < block.num_keys; key += kTileRows) {
    const int64_t num_keys = std::min<int64_t>(kTileRows, block.num_keys - key);
    // Earlier rows see none of these keys.
    const int64_t skipped = std::max<int64_t>(0, (block.begin + key) * rows.group - row);
    if (skipped >= num_rows) return;
    float* dk[kTileRows] = {};
    float* dv[kTileRows] = {};
    for (int64_t i = 0; i < num_keys; ++i) {
      dk[i] = room.dk + (key + i) * room.padded_dim;
      dv[i] = room.dv + (key + i) * room.padded_dim;
    }
    const int64_t corner = skipped * kKeyBlock + key;
    const int64_t offset = (row + skipped - rows.begin) * room.padded_dim;
    const int64_t n = num_rows - skipped;
    AddRows<Target>({room.weights + corner, 1, kKeyBlock}, num_keys, room.dout + offset,
                    room.padded_dim, n, room.padded_dim, /*is_first=*/false, dv);
    AddRows<Target>({room.dscores + corner, 1, kKeyBlock}, num_keys, room.q + offset,
                    room.padded_dim, n, room.padded_dim, /*is_first=*/false, dk);
  }
}

// Queries were scaled by scale * log2(e), but dk needs only the scale.
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
  const bool has_dq = part.gradients != Gradients::kKeys;
  const bool has_dkv = part.gradients != Gradients::kQueries;
  const Rows rows = {.begin = part.begin * task.group,
                     .end = (has_dkv ? task.num_positions : part.end) * task.group,
                     .group = task.group};
  const Room room = Carve(scratch, rows.end - rows.begin, task.head_dim);
  LoadQueries(task, rows, room);
  for (int64_t begin = has_dkv ? part.begin : 0; begin < part.end; begin += kKeyBlock) {
    const Block block = {.begin = begin,
                         .num_keys = std::min(kKeyBlock, part.end - begin),
                         .has_dq = has_dq,
                         .has_dkv = has_dkv};
    LoadKeys(task, block, room);
    for (int64_t row = std::max(rows.begin, begin * task.group); row < rows.end;
         row += kChunkRows) {
      const int64_t num_rows = std::min(kChunkRows, rows.end - row);
      for (int64_t i = 0; i < num_rows; i += kTileRows) {
        DifferentiateTile<Target>(task, rows, block, room, row + i,
                                  std::min<int64_t>(kTileRows, num_rows - i), i);
      }
      if (has_dkv) AddToKeys<Target>(rows, block, room, row, num_rows);
    }
    if (has_dkv) StoreKeys(task, block, room);
  }
  if (has_dq) StoreQueries(task, rows, room);
}

LATHE_WIDE_TARGET void BackwardWide(const AttentionBackwardTask& task,
                                    const AttentionBackwardPart& part, float* scratch) {
  BackwardPart<WideTarget>(task, part, scratch);
}

LATHE_NARROW_TARGET void BackwardNarrow(const AttentionBackwardTask& task,
                                        const AttentionBackwardPart& part, float* scratch) {
  BackwardPart<NarrowTarget>(task, part, scratch);
}

void BackwardPlain(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                   float* scratch) {
  BackwardPart<PlainTarget>(task, part, scratch);
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

int64_t AttentionBackwardScratchSize(int64_t num_rows, int64_t head_dim) {
  return (5 * kKeyBlock + 3 * num_rows) * RoundUp(head_dim, kLanes) + 2 * kChunkRows * kKeyBlock;
}

void AttendBackward(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch) {
  ForThisMachine(BackwardWide, BackwardNarrow, BackwardPlain)(task, part, scratch);
}

}  // namespace lathe::worker
