// The backward pass of attention over an arithmetic. Hot file, free of torch: include it where the
// arithmetic's instruction set is the target.
#pragma once

#include "services/worker/kernels/cpu/attention/attention_tile.h"

namespace lathe::worker::attention {

// Scratch memory in pieces. Query rows are gathered once, because in the tensors they are pages
// apart and every block of keys reads them: for products over a head's numbers, and for products
// over rows.
template <typename Arithmetic>
struct Room {
  using Element = typename Arithmetic::Element;
  static constexpr int64_t kNumbers = Arithmetic::kNumbers;

  Room(float* memory, int64_t num_rows, int64_t head_dim)
      : padded_dim(RoundUp(head_dim, kLanes)), row_size(padded_dim / kNumbers) {
    Scratch scratch = {memory};
    const auto take = [&](int64_t size) { return scratch.Take<Element>(size); };
    keys_transposed = take(kKeyBlock * row_size);
    values_transposed = take(kKeyBlock * row_size);
    keys = take(kKeyBlock * row_size);
    dk = scratch.Take(kKeyBlock * padded_dim);
    dv = scratch.Take(kKeyBlock * padded_dim);
    weights = take(kBackwardChunkRows / kNumbers * kKeyBlock);
    dscores = take(kBackwardChunkRows / kNumbers * kKeyBlock);
    if constexpr (kNumbers > 1) {
      tile = {scratch.Take(kTileRows * kKeyBlock), scratch.Take(kTileRows * kKeyBlock),
              take(kTileRows * kKeyBlock / kNumbers)};
    }
    dq = scratch.Take(num_rows * padded_dim);
    q = take(num_rows * row_size);
    dout = take(num_rows * row_size);
    // Elements of one number have the same layout in both directions.
    const int64_t num_across = (num_rows + kNumbers - 1) / kNumbers;
    q_across = kNumbers == 1 ? q : take(num_across * padded_dim);
    dout_across = kNumbers == 1 ? dout : take(num_across * padded_dim);
  }

  // Scores, dL/dP and then dL/dS of a tile whose first row is `place` of the chunk. They are part
  // of the chunk if its layout is theirs.
  struct Tile {
    float* scores;     // [kTileRows, kKeyBlock]
    float* dweights;   // same
    Element* dscores;  // [kTileRows, kKeyBlock / kNumbers]
  };
  LATHE_INLINE Tile TileAt(int64_t place) const {
    if constexpr (kNumbers > 1) {
      return tile;
    } else {
      float* rows = dscores + place * kKeyBlock;
      return {weights + place * kKeyBlock, rows, rows};
    }
  }

  int64_t padded_dim;
  int64_t row_size;            // elements of a row of q
  Element* keys_transposed;    // [kKeyVectors, d / kNumbers, kLanes]
  Element* values_transposed;  // same
  Element* keys;               // [kKeyBlock / kNumbers, padded d]
  float* dk;                   // [kKeyBlock, padded d]
  float* dv;                   // same
  Element* weights;            // [kBackwardChunkRows / kNumbers, kKeyBlock]
  Element* dscores;            // same
  Tile tile;                   // see TileAt
  float* dq;                   // [rows of the part, padded d]
  Element* q;                  // [rows, row_size]
  Element* dout;               // same
  Element* q_across;           // [rows / kNumbers, padded d]
  Element* dout_across;        // same
};

// A block of keys and the gradients to compute with it.
struct GradientBlock {
  int64_t begin;  // position of the first key
  int64_t num_keys;
  bool has_dq;
  bool has_dkv;
};

template <typename Arithmetic>
LATHE_INLINE void LoadKeys(const AttentionBackwardTask& task, const GradientBlock& block,
                           const Room<Arithmetic>& room) {
  const int64_t d = task.head_dim;
  PackTransposed<Arithmetic>(task.k.at(block.begin, 0), task.k.row_stride, block.num_keys, d,
                             room.keys_transposed);
  PackTransposed<Arithmetic>(task.v.at(block.begin, 0), task.v.row_stride, block.num_keys, d,
                             room.values_transposed);
  const auto key = [&](int64_t i) LATHE_INLINE_LAMBDA { return task.k.at(block.begin + i, 0); };
  if (block.has_dq) {
    PackAcross<Arithmetic>(block.num_keys, key, Arithmetic::ScalesOf(task.scale).key, d, room.keys);
  }
  if (!block.has_dkv) return;
  std::fill(room.dk, room.dk + kKeyBlock * room.padded_dim, 0.0f);
  std::fill(room.dv, room.dv + kKeyBlock * room.padded_dim, 0.0f);
}

// Rows [begin, end) of a part's query rows, which are ordered by position, then head. `begin` is a
// multiple of kNumbers if dk and dv are computed.
struct Rows {
  int64_t begin;
  int64_t end;
  int64_t group;
  int64_t window;

  LATHE_INLINE int64_t position(int64_t row) const { return row / group; }
  LATHE_INLINE int64_t head(int64_t row) const { return row % group; }
  LATHE_INLINE float* of(const HeadRows& x, int64_t row) const {
    return x.at(position(row), head(row));
  }
  // Keys of the block that the row sees: those before `limit`, from `first_key` on.
  LATHE_INLINE int64_t limit(int64_t row, const GradientBlock& block) const {
    return std::min(block.num_keys, position(row) + 1 - block.begin);
  }
  LATHE_INLINE int64_t first_key(int64_t row, const GradientBlock& block) const {
    return FirstKey(position(row), window) - block.begin;
  }
  // Rows up to the last one that sees a key of the block.
  LATHE_INLINE Rows that_see(const GradientBlock& block) const {
    if (window == 0) return *this;
    Rows rows = *this;
    rows.end = std::min(end, (block.begin + block.num_keys - 1 + window) * group);
    return rows;
  }
};

template <typename Arithmetic>
LATHE_INLINE void LoadQueries(const AttentionBackwardTask& task, const Rows& rows, bool has_dkv,
                              const Room<Arithmetic>& room) {
  const int64_t num_rows = rows.end - rows.begin;
  const auto load = [&](const HeadRows& x, float factor, auto* along,
                        auto* across) LATHE_INLINE_LAMBDA {
    const auto row = [&](int64_t i) LATHE_INLINE_LAMBDA { return rows.of(x, rows.begin + i); };
    for (int64_t i = 0; i < num_rows; ++i) {
      PackRow<Arithmetic>(row(i), factor, task.head_dim, along + i * room.row_size);
    }
    if (!has_dkv || across == along) return;
    PackAcross<Arithmetic>(num_rows, row, factor, task.head_dim, across);
  };
  load(task.q, Arithmetic::ScalesOf(task.scale).query, room.q, room.q_across);
  load(task.dout, 1.0f, room.dout, room.dout_across);
}

template <typename Arithmetic>
LATHE_INLINE void StoreQueries(const AttentionBackwardTask& task, const Rows& rows,
                               const Room<Arithmetic>& room) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    CopyScaled(room.dq + (row - rows.begin) * room.padded_dim, Arithmetic::ScalesOf(task.scale).dq,
               task.head_dim, rows.of(task.dq, row));
  }
}

// Turns the scores of kNumbers rows into weights P, and dL/dP into dL/dS = P (dL/dP - delta). The
// first is row `row` of the part, `tile_row` of the tile and `place` of the chunk. Both results are
// zero for keys that a row does not see and for rows past the end.
template <typename Arithmetic>
LATHE_INLINE void DifferentiateRows(const AttentionBackwardTask& task, const Rows& rows,
                                    const GradientBlock& block, const Room<Arithmetic>& room,
                                    int64_t row, int64_t tile_row, int64_t place) {
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
  const float scale = Arithmetic::ScalesOf(task.scale).score;
  float log_sums[kNumbers] = {};
  float deltas[kNumbers] = {};
  int64_t limits[kNumbers] = {};
  int64_t first_keys[kNumbers] = {};
  for (int64_t j = 0; j < kNumbers && row + j < rows.end; ++j) {
    log_sums[j] = *rows.of(task.log_sums, row + j);
    deltas[j] = *rows.of(task.deltas, row + j);
    limits[j] = rows.limit(row + j, block);
    first_keys[j] = rows.first_key(row + j, block);
  }
  const auto tile = room.TileAt(place - tile_row);
  const float* scores = tile.scores + tile_row * kKeyBlock;
  const float* dweights = tile.dweights + tile_row * kKeyBlock;
#pragma GCC unroll 4
  for (int64_t part = 0; part < kKeyVectors; part += kNumbers) {
    Lanes dscores[kNumbers][kNumbers];  // of a row and a vector
#pragma GCC unroll 2
    for (int64_t v = 0; v < kNumbers; ++v) {
      const int64_t key = (part + v) * kLanes;
      Lanes weights[kNumbers];
      Lanes across[kNumbers];
#pragma GCC unroll 2
      for (int64_t j = 0; j < kNumbers; ++j) {
        Words is_seen = kLaneIndex < static_cast<int32_t>(limits[j] - key);
        if (first_keys[j] > key) {
          is_seen &= kLaneIndex >= static_cast<int32_t>(first_keys[j] - key);
        }
        // Values past the tile's last key were not computed.
        const Lanes p = Exp2(Load(scores + j * kKeyBlock + key) * scale - log_sums[j]);
        const Lanes dp = Load(dweights + j * kKeyBlock + key) - deltas[j];
        weights[j] = (Lanes)((Words)p & is_seen);
        across[j] = (Lanes)((Words)(p * dp) & is_seen);
        dscores[j][v] = across[j];
      }
      if (kNumbers > 1 && !block.has_dkv) continue;
      Store(room.weights + place / kNumbers * kKeyBlock + key, Arithmetic::Across(weights));
      Store(room.dscores + place / kNumbers * kKeyBlock + key, Arithmetic::Across(across));
    }
#pragma GCC unroll 2
    for (int64_t j = 0; kNumbers > 1 && j < kNumbers; ++j) {
      Store(tile.dscores + ((tile_row + j) * kKeyBlock + part * kLanes) / kNumbers,
            Arithmetic::Along(dscores[j]));
    }
  }
}

// Computes weights and score gradients of rows [row, row + num_rows), which begin at row `place` of
// the chunk, and adds to dq.
template <typename Arithmetic>
LATHE_INLINE void DifferentiateTile(const AttentionBackwardTask& task, const Rows& rows,
                                    const GradientBlock& block, const Room<Arithmetic>& room,
                                    int64_t row, int64_t num_rows, int64_t place) {
  using Element = typename Arithmetic::Element;
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
  const int64_t num_keys = rows.limit(row + num_rows - 1, block);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const int64_t num_elements = task.head_dim / kNumbers;
  const int64_t offset = row - rows.begin;
  const auto tile = room.TileAt(place);
  const Element* keys[kKeyVectors];
  const Element* values[kKeyVectors];
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    keys[v] = room.keys_transposed + v * kLanes * num_elements;
    values[v] = room.values_transposed + v * kLanes * num_elements;
  }
  ScoreTile<Arithmetic>(room.q + offset * room.row_size, room.row_size, num_rows, keys, values,
                        num_vectors, num_elements, tile.scores);
  ScoreTile<Arithmetic>(room.dout + offset * room.row_size, room.row_size, num_rows, values, values,
                        num_vectors, num_elements, tile.dweights);
  for (int64_t i = 0; i < num_rows; i += kNumbers) {
    DifferentiateRows(task, rows, block, room, row + i, i, place + i);
  }
  if (!block.has_dq) return;
  float* dq[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) dq[i] = room.dq + (offset + i) * room.padded_dim;
  AddRows<Arithmetic, Weights::kRows>(tile.dscores, num_rows, room.keys, room.padded_dim,
                                      (num_keys + kNumbers - 1) / kNumbers, room.padded_dim,
                                      /*is_first=*/block.begin == 0 && rows.window == 0, dq);
}

// Adds the contribution of the `num_rows` rows from `row` on to the block's dk and dv.
template <typename Arithmetic>
LATHE_INLINE void AddToKeys(const Rows& rows, const GradientBlock& block,
                            const Room<Arithmetic>& room, int64_t row, int64_t num_rows) {
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
  for (int64_t key = 0; key < block.num_keys; key += kTileRows) {
    const int64_t num_keys = std::min<int64_t>(kTileRows, block.num_keys - key);
    // Earlier rows do not see these keys, but one may share an element with a row that does.
    const int64_t skipped = std::max<int64_t>(0, (block.begin + key) * rows.group - row) / kNumbers;
    const int64_t n = (num_rows + kNumbers - 1) / kNumbers - skipped;
    if (n <= 0) return;
    float* dk[kTileRows] = {};
    float* dv[kTileRows] = {};
    for (int64_t i = 0; i < num_keys; ++i) {
      dk[i] = room.dk + (key + i) * room.padded_dim;
      dv[i] = room.dv + (key + i) * room.padded_dim;
    }
    const int64_t corner = skipped * kKeyBlock + key;
    const int64_t offset = ((row - rows.begin) / kNumbers + skipped) * room.padded_dim;
    const auto add = [&](const auto* weights, const auto* of,
                         float* const(&to)[kTileRows]) LATHE_INLINE_LAMBDA {
      AddRows<Arithmetic, Weights::kColumns>(weights + corner, num_keys, of + offset,
                                             room.padded_dim, n, room.padded_dim,
                                             /*is_first=*/false, to);
    };
    add(room.weights, room.dout_across, dv);
    add(room.dscores, room.q_across, dk);
  }
}

template <typename Arithmetic>
LATHE_INLINE void StoreKeys(const AttentionBackwardTask& task, const GradientBlock& block,
                            const Room<Arithmetic>& room) {
  for (int64_t i = 0; i < block.num_keys; ++i) {
    CopyScaled(room.dk + i * room.padded_dim, Arithmetic::ScalesOf(task.scale).dk, task.head_dim,
               task.dk.at(block.begin + i, 0));
    CopyScaled(room.dv + i * room.padded_dim, 1.0f, task.head_dim, task.dv.at(block.begin + i, 0));
  }
}

template <typename Arithmetic>
void BackwardPart(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                  float* memory) {
  using Gradients = AttentionBackwardPart::Gradients;
  const bool has_dq = part.gradients != Gradients::kKeys;
  const bool has_dkv = part.gradients != Gradients::kQueries;
  const int64_t last_key = part.end - 1;
  const int64_t end = !has_dkv           ? part.end
                      : task.window == 0 ? task.num_positions
                                         : std::min(task.num_positions, last_key + task.window);
  const Rows rows = {.begin = part.begin * task.group,
                     .end = end * task.group,
                     .group = task.group,
                     .window = task.window};
  const Room<Arithmetic> room(memory, rows.end - rows.begin, task.head_dim);
  LoadQueries(task, rows, has_dkv, room);
  if (task.window != 0) {
    // Rows of a tile begin with different blocks, so none of them is the first one of the tile.
    std::fill(room.dq, room.dq + (rows.end - rows.begin) * room.padded_dim, 0.0f);
  }
  const int64_t first_key = FirstKey(part.begin, task.window) / kKeyBlock * kKeyBlock;
  for (int64_t begin = has_dkv ? part.begin : first_key; begin < part.end; begin += kKeyBlock) {
    const GradientBlock block = {.begin = begin,
                                 .num_keys = std::min(kKeyBlock, part.end - begin),
                                 .has_dq = has_dq,
                                 .has_dkv = has_dkv};
    LoadKeys(task, block, room);
    const Rows seeing = rows.that_see(block);
    for (int64_t row = std::max(rows.begin, begin * task.group); row < seeing.end;
         row += kBackwardChunkRows) {
      const int64_t num_rows = std::min(kBackwardChunkRows, seeing.end - row);
      for (int64_t i = 0; i < num_rows; i += kTileRows) {
        DifferentiateTile(task, seeing, block, room, row + i,
                          std::min<int64_t>(kTileRows, num_rows - i), i);
      }
      if (has_dkv) AddToKeys(seeing, block, room, row, num_rows);
    }
    if (has_dkv) StoreKeys(task, block, room);
  }
  if (has_dq) StoreQueries(task, rows, room);
}

}  // namespace lathe::worker::attention
