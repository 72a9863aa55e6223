#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"
#include "services/worker/kernels/cpu/attention/attention_bf16_tile.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the building blocks of this file
using Gradients = AttentionBackwardPart::Gradients;

// Query rows per chunk: long chains for dk and dv, and all data in the cache.
constexpr int64_t kChunkRows = 96;

// Scratch memory in pieces. Rows are gathered and rounded once: for products over a head's numbers,
// and, two rows in a word, for products over rows.
struct Room {
  int32_t* keys_transposed;    // [kKeyVectors, d / 2, kLanes]
  int32_t* values_transposed;  // same
  int32_t* keys;               // [kKeyBlockWords, padded d]
  float* dk;                   // [kKeyBlock, padded d]
  float* dv;                   // same
  int32_t* weights;            // [kChunkRows / 2, kKeyBlock]
  int32_t* dscores;            // same
  float* tile_scores;          // [kTileRows, kKeyBlock]
  float* tile_dweights;        // same
  int32_t* tile_dscores;       // [kTileRows, kKeyBlockWords]
  int32_t* q;                  // [rows of the part, padded d / 2]
  int32_t* dout;               // same
  int32_t* q_pairs;            // [rows / 2, padded d]
  int32_t* dout_pairs;         // same
  float* dq;                   // [rows, padded d]
  int64_t padded_dim;

  int64_t row_words() const { return padded_dim / kWordNumbers; }
};

Room Carve(float* scratch, int64_t num_rows, int64_t head_dim) {
  Room room = {};
  room.padded_dim = RoundUp(head_dim, kLanes);
  const auto take = [&](int64_t height, int64_t width) {
    float* part = scratch;
    scratch += height * width;
    return part;
  };
  const auto take_words = [&](int64_t height, int64_t width) {
    return reinterpret_cast<int32_t*>(take(height, width));
  };
  const int64_t num_pairs = (num_rows + 1) / kWordNumbers;
  room.keys_transposed = take_words(kKeyBlockWords, room.padded_dim);
  room.values_transposed = take_words(kKeyBlockWords, room.padded_dim);
  room.keys = take_words(kKeyBlockWords, room.padded_dim);
  room.dk = take(kKeyBlock, room.padded_dim);
  room.dv = take(kKeyBlock, room.padded_dim);
  room.weights = take_words(kChunkRows / kWordNumbers, kKeyBlock);
  room.dscores = take_words(kChunkRows / kWordNumbers, kKeyBlock);
  room.tile_scores = take(kTileRows, kKeyBlock);
  room.tile_dweights = take(kTileRows, kKeyBlock);
  room.tile_dscores = take_words(kTileRows, kKeyBlockWords);
  room.q_pairs = take_words(num_pairs, room.padded_dim);
  room.dout_pairs = take_words(num_pairs, room.padded_dim);
  room.dq = take(num_rows, room.padded_dim);
  room.q = take_words(num_rows, room.row_words());
  room.dout = take_words(num_rows, room.row_words());
  return room;
}

// A block of keys and the gradients to compute with it.
struct Block {
  int64_t begin;  // position of the first key
  int64_t num_keys;
  bool has_dq;
  bool has_dkv;
};

LATHE_BF16_TARGET LATHE_INLINE void LoadKeys(const AttentionBackwardTask& task, const Block& block,
                                             const Room& room) {
  const int64_t d = task.head_dim;
  PackTransposedWords(task.k.at(block.begin, 0), task.k.row_stride, block.num_keys, d,
                      room.keys_transposed);
  PackTransposedWords(task.v.at(block.begin, 0), task.v.row_stride, block.num_keys, d,
                      room.values_transposed);
  for (int64_t i = 0; block.has_dq && i < block.num_keys; i += kWordNumbers) {
    ZipRows(task.k.at(block.begin + i, 0),
            i + 1 < block.num_keys ? task.k.at(block.begin + i + 1, 0) : nullptr, d,
            room.keys + i / kWordNumbers * room.padded_dim);
  }
  if (!block.has_dkv) return;
  std::fill(room.dk, room.dk + kKeyBlock * room.padded_dim, 0.0f);
  std::fill(room.dv, room.dv + kKeyBlock * room.padded_dim, 0.0f);
}

// Rows [begin, end) of a part's query rows, which are ordered by position, then head. `begin` is
// even if pairs of rows are used.
struct Rows {
  int64_t begin;
  int64_t end;
  int64_t group;

  int64_t position(int64_t row) const { return row / group; }
  int64_t head(int64_t row) const { return row % group; }
};

LATHE_BF16_TARGET LATHE_INLINE void LoadQueries(const AttentionBackwardTask& task, const Rows& rows,
                                                bool has_pairs, const Room& room) {
  const auto at = [&](const HeadRows& x, int64_t row) LATHE_INLINE_LAMBDA {
    return row < rows.end ? x.at(rows.position(row), rows.head(row)) : nullptr;
  };
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t place = row - rows.begin;
    RoundRow(at(task.q, row), task.head_dim, room.q + place * room.row_words());
    RoundRow(at(task.dout, row), task.head_dim, room.dout + place * room.row_words());
    if (!has_pairs || place % kWordNumbers != 0) continue;
    const int64_t pair = place / kWordNumbers * room.padded_dim;
    ZipRows(at(task.q, row), at(task.q, row + 1), task.head_dim, room.q_pairs + pair);
    ZipRows(at(task.dout, row), at(task.dout, row + 1), task.head_dim, room.dout_pairs + pair);
  }
}

LATHE_INLINE void StoreQueries(const AttentionBackwardTask& task, const Rows& rows,
                               const Room& room) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    CopyScaled(room.dq + (row - rows.begin) * room.padded_dim, task.scale, task.head_dim,
               task.head_dim, task.dq.at(rows.position(row), rows.head(row)));
  }
}

// Weights P of one row and dL/dS = P (dL/dP - delta). Both are zero for keys from `limit` on, which
// are in the row's future.
struct RowGradients {
  Lanes weights[kKeyVectors];
  Lanes dscores[kKeyVectors];
};

LATHE_INLINE RowGradients DifferentiateRow(float scale, float log_sum, float delta, int64_t limit,
                                           const float* scores, const float* dweights) {
  RowGradients row;
#pragma GCC unroll 4
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    const Words is_past = kLaneIndex < static_cast<int32_t>(limit - v * kLanes);
    // Values past the tile's last key were not computed.
    const Lanes weights = Exp2(Load(scores + v * kLanes) * scale - log_sum);
    const Lanes dscores = weights * (Load(dweights + v * kLanes) - delta);
    row.weights[v] = (Lanes)((Words)weights & is_past);
    row.dscores[v] = (Lanes)((Words)dscores & is_past);
  }
  return row;
}

// Computes weights and score gradients of rows [row, row + num_rows), which begin at row `place` of
// the chunk, and adds to dq.
LATHE_BF16_TARGET LATHE_INLINE void DifferentiateTile(const AttentionBackwardTask& task,
                                                      const Rows& rows, const Block& block,
                                                      const Room& room, int64_t row,
                                                      int64_t num_rows, int64_t place) {
  const auto limit_of = [&](int64_t r) LATHE_INLINE_LAMBDA {
    return std::min(block.num_keys, rows.position(r) + 1 - block.begin);
  };
  const auto differentiate = [&](int64_t i) LATHE_INLINE_LAMBDA {
    const int64_t position = rows.position(row + i);
    const int64_t head = rows.head(row + i);
    return DifferentiateRow(task.scale * kLog2E, *task.log_sums.at(position, head),
                            *task.deltas.at(position, head), limit_of(row + i),
                            room.tile_scores + i * kKeyBlock, room.tile_dweights + i * kKeyBlock);
  };
  const int64_t num_keys = limit_of(row + num_rows - 1);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const int64_t num_words = task.head_dim / kWordNumbers;
  const int64_t offset = row - rows.begin;
  const int32_t* keys[kKeyVectors];
  const int32_t* values[kKeyVectors];
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    keys[v] = room.keys_transposed + v * kLanes * num_words;
    values[v] = room.values_transposed + v * kLanes * num_words;
  }
  ScoreTileBf16(room.q + offset * room.row_words(), room.row_words(), num_rows, keys, values,
                num_vectors, num_words, room.tile_scores);
  ScoreTileBf16(room.dout + offset * room.row_words(), room.row_words(), num_rows, values, values,
                num_vectors, num_words, room.tile_dweights);
  for (int64_t i = 0; i < num_rows; i += kWordNumbers) {
    const RowGradients first = differentiate(i);
    RowGradients second = {};
    if (i + 1 < num_rows) second = differentiate(i + 1);
    const int64_t pair = (place + i) / kWordNumbers * kKeyBlock;
    for (int64_t v = 0; block.has_dkv && v < kKeyVectors; ++v) {
      StoreWords(room.weights + pair + v * kLanes, ZipPair(first.weights[v], second.weights[v]));
      StoreWords(room.dscores + pair + v * kLanes, ZipPair(first.dscores[v], second.dscores[v]));
    }
    int32_t* dscores = room.tile_dscores + i * kKeyBlockWords;
#pragma GCC unroll 2
    for (int64_t v = 0; v < kKeyVectors; v += 2) {
      StoreWords(dscores + v * kLaneWords, RoundPair(first.dscores[v], first.dscores[v + 1]));
      StoreWords(dscores + kKeyBlockWords + v * kLaneWords,
                 RoundPair(second.dscores[v], second.dscores[v + 1]));
    }
  }
  if (!block.has_dq) return;
  float* dq[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) dq[i] = room.dq + (offset + i) * room.padded_dim;
  AddRowsBf16({room.tile_dscores, kKeyBlockWords, 1}, num_rows, room.keys, room.padded_dim,
              (num_keys + 1) / kWordNumbers, room.padded_dim, /*is_first=*/block.begin == 0, dq);
}

// Adds the contribution of the `num_rows` rows from `row` on to the block's dk and dv.
LATHE_BF16_TARGET LATHE_INLINE void AddToKeys(const Rows& rows, const Block& block,
                                              const Room& room, int64_t row, int64_t num_rows) {
  for (int64_t key = 0; key < block.num_keys; key += kTileRows) {
    const int64_t num_keys = std::min<int64_t>(kTileRows, block.num_keys - key);
    // Earlier rows do not see these keys, but one of them may share a word with a row that does.
    const int64_t skipped =
        std::max<int64_t>(0, (block.begin + key) * rows.group - row) / kWordNumbers;
    const int64_t num_pairs = (num_rows + 1) / kWordNumbers - skipped;
    if (num_pairs <= 0) return;
    float* dk[kTileRows] = {};
    float* dv[kTileRows] = {};
    for (int64_t i = 0; i < num_keys; ++i) {
      dk[i] = room.dk + (key + i) * room.padded_dim;
      dv[i] = room.dv + (key + i) * room.padded_dim;
    }
    const int64_t corner = skipped * kKeyBlock + key;
    const int64_t offset = ((row - rows.begin) / kWordNumbers + skipped) * room.padded_dim;
    AddRowsBf16({room.weights + corner, 1, kKeyBlock}, num_keys, room.dout_pairs + offset,
                room.padded_dim, num_pairs, room.padded_dim, /*is_first=*/false, dv);
    AddRowsBf16({room.dscores + corner, 1, kKeyBlock}, num_keys, room.q_pairs + offset,
                room.padded_dim, num_pairs, room.padded_dim, /*is_first=*/false, dk);
  }
}

LATHE_INLINE void StoreKeys(const AttentionBackwardTask& task, const Block& block,
                            const Room& room) {
  for (int64_t i = 0; i < block.num_keys; ++i) {
    CopyScaled(room.dk + i * room.padded_dim, task.scale, task.head_dim, task.head_dim,
               task.dk.at(block.begin + i, 0));
    CopyScaled(room.dv + i * room.padded_dim, 1.0f, task.head_dim, task.head_dim,
               task.dv.at(block.begin + i, 0));
  }
}

LATHE_BF16_TARGET void BackwardPart(const AttentionBackwardTask& task,
                                    const AttentionBackwardPart& part, float* scratch) {
  const bool has_dq = part.gradients != Gradients::kKeys;
  const bool has_dkv = part.gradients != Gradients::kQueries;
  const Rows rows = {.begin = part.begin * task.group,
                     .end = (has_dkv ? task.num_positions : part.end) * task.group,
                     .group = task.group};
  const Room room = Carve(scratch, rows.end - rows.begin, task.head_dim);
  LoadQueries(task, rows, has_dkv, room);
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
        DifferentiateTile(task, rows, block, room, row + i,
                          std::min<int64_t>(kTileRows, num_rows - i), i);
      }
      if (has_dkv) AddToKeys(rows, block, room, row, num_rows);
    }
    if (has_dkv) StoreKeys(task, block, room);
  }
  if (has_dq) StoreQueries(task, rows, room);
}

}  // namespace

void AttendBackwardBf16(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                        float* scratch) {
  BackwardPart(task, part, scratch);
}

}  // namespace lathe::worker
