// The forward pass of attention over an arithmetic. Hot file, free of torch: include it where the
// arithmetic's instruction set is the target.
#pragma once

#include "services/worker/kernels/cpu/attention/attention_softmax.h"
#include "services/worker/kernels/cpu/attention/attention_tile.h"

namespace lathe::worker::attention {

// One block of keys and values in the layout of the products.
template <typename Arithmetic>
struct Block {
  using Element = typename Arithmetic::Element;
  static constexpr int64_t kRows = kLanes / Arithmetic::kNumbers;  // of values, per vector of keys

  const Element* keys[kKeyVectors] = {};       // [head_dim / kNumbers, kLanes] each
  const Element* values[kKeyVectors] = {};     // kRows rows of value_stride each
  const Element* next_keys[kKeyVectors] = {};  // of the block needed next
  int64_t value_stride;
};

// State of some query rows that is carried from block to block.
template <typename Arithmetic>
struct State : RunningRows {
  using Element = typename Arithmetic::Element;

  State(float* memory, int64_t num_rows, int64_t head_dim) {
    Scratch scratch = {memory};
    padded_dim = RoundUp(head_dim, kLanes);
    row_size = padded_dim / Arithmetic::kNumbers;
    scores = scratch.Take(kTileRows * kKeyBlock);
    if constexpr (Arithmetic::kNumbers == 1) {
      weights = scores;  // same layout
    } else {
      weights = scratch.Take<Element>(kTileRows * kKeyBlock / Arithmetic::kNumbers);
    }
    packed_keys = scratch.Take<Element>(kKeyBlock * row_size);
    packed_values = scratch.Take<Element>(kKeyBlock * row_size);
    out = scratch.Take(num_rows * padded_dim);
    sums = scratch.Take(num_rows * kLanes);
    q = scratch.Take<Element>(num_rows * row_size);
    max = scratch.Take(num_rows);
  }

  // Returns the part from `row` on.
  State FromRow(int64_t row) const {
    State part = *this;
    part.out += row * padded_dim;
    part.sums += row * kLanes;
    part.max += row;
    part.q += row * row_size;
    return part;
  }

  int64_t row_size;        // elements of a row of q
  Element* q;              // [rows, row_size]
  float* scores;           // [kTileRows, kKeyBlock]
  Element* weights;        // [kTileRows, kKeyBlock / kNumbers]
  Element* packed_keys;    // scratch memory for a block
  Element* packed_values;  // same
};

// Loads keys and values of the block from position `first` on, up to `end`. Rows of a training pass
// are rearranged: their strides are large powers of two, which would map them to few places of the
// cache.
template <typename Arithmetic>
LATHE_INLINE Block<Arithmetic> LoadBlock(const KeyRows& source, int64_t first, int64_t end,
                                         int64_t head_dim, const State<Arithmetic>& state) {
  using Loaded = Block<Arithmetic>;
  const int64_t num_keys = std::min(kKeyBlock, end - first);
  PackTransposed<Arithmetic>(source.keys + first * source.key_stride, source.key_stride, num_keys,
                             head_dim, state.packed_keys);
  const auto value = [&](int64_t i) LATHE_INLINE_LAMBDA {
    return source.values + (first + i) * source.value_stride;
  };
  PackAcross<Arithmetic>(num_keys, value, 1.0f, head_dim, state.packed_values);
  Loaded loaded;
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    loaded.keys[v] = state.packed_keys + v * Loaded::kRows * head_dim;
    loaded.next_keys[v] = loaded.keys[v];
    loaded.values[v] = state.packed_values + v * Loaded::kRows * state.padded_dim;
  }
  loaded.value_stride = state.padded_dim;
  return loaded;
}

// Uses blocks of the KV cache in place, unless rows of values do not fill whole vectors. The blocks
// are anywhere in memory, so hardware cannot predict the next one.
template <typename Arithmetic>
LATHE_INLINE Block<Arithmetic> LoadBlock(const KeyBlocks<typename Arithmetic::Element>& source,
                                         int64_t first, int64_t end, int64_t head_dim,
                                         const State<Arithmetic>& state) {
  using Loaded = Block<Arithmetic>;
  const int64_t num_keys = std::min(kKeyBlock, end - first);
  const int64_t last = (end - 1) / kLanes;
  Loaded loaded;
  loaded.value_stride = state.padded_dim;
  for (int64_t v = 0; v * kLanes < num_keys; ++v) {
    const int64_t cache_block = first / kLanes + v;
    const int64_t offset = source.blocks[cache_block] * source.block_stride;
    loaded.keys[v] = source.keys + offset;
    loaded.values[v] = source.values + offset;
    loaded.next_keys[v] = source.keys + source.blocks[std::min(cache_block + kKeyVectors, last)] *
                                            source.block_stride;
    if (head_dim == state.padded_dim) continue;
    auto* values = state.packed_values + v * Loaded::kRows * state.padded_dim;
    for (int64_t i = 0; i < Loaded::kRows; ++i) {
      auto* row = values + i * state.padded_dim;
      std::copy_n(source.values + offset + i * head_dim, head_dim, row);
      std::fill(row + head_dim, row + state.padded_dim, 0);
    }
    loaded.values[v] = values;
  }
  return loaded;
}

// Adds a block of keys to the rows [row, row + num_rows).
template <typename Arithmetic>
LATHE_INLINE void AttendTile(const AttentionQueries& queries, const Block<Arithmetic>& block,
                             const State<Arithmetic>& state, int64_t row, int64_t num_rows,
                             int64_t block_begin) {
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
  const auto seen_by = [&](int64_t r) LATHE_INLINE_LAMBDA {
    const int64_t position = queries.first_position + r / queries.group;
    return SeenKeys{FirstKey(position, queries.window) - block_begin,
                    std::min(kKeyBlock, position + 1 - block_begin)};
  };
  const int64_t num_keys = seen_by(row + num_rows - 1).end;
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const bool is_first = block_begin == 0 && queries.window == 0;
  const float scale = Arithmetic::ScalesOf(queries.scale).score;
  ScoreTile<Arithmetic>(state.q + row * state.row_size, state.row_size, num_rows, block.keys,
                        block.values, num_vectors, queries.head_dim / kNumbers, state.scores);
  float* out[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) {
    const float* scores = state.scores + i * kKeyBlock;
    Lanes values[kKeyVectors];
    for (int64_t v = 0; v < kKeyVectors; ++v) {
      values[v] = v < num_vectors ? Load(scores + v * kLanes) * scale : Lanes{};
    }
    UpdateRow(state, row + i, seen_by(row + i), num_vectors, is_first, values);
    StoreRow<Arithmetic>(values, state.weights + i * kKeyBlock / kNumbers);
    out[i] = state.out + (row + i) * state.padded_dim;
  }
  WeighTile<Arithmetic, Weights::kRows>(
      state.weights, num_rows, block.values, block.next_keys, Block<Arithmetic>::kRows,
      block.value_stride, (num_keys + kNumbers - 1) / kNumbers, state.padded_dim, is_first, out);
}

LATHE_INLINE int64_t NumRows(const AttentionQueries& queries) {
  return queries.num_positions * queries.group;
}

LATHE_INLINE int64_t EndOf(const AttentionQueries& queries) {
  return queries.first_position + queries.num_positions;
}

template <typename Arithmetic>
void LoadQueries(const AttentionQueries& queries, const State<Arithmetic>& state) {
  const float scale = Arithmetic::ScalesOf(queries.scale).query;
  const int64_t num_rows = NumRows(queries);
  if (queries.window != 0) {
    // Rows of a tile begin with different blocks, so none of them is the first one of the tile.
    std::fill(state.out, state.out + num_rows * state.padded_dim, 0.0f);
    std::fill(state.sums, state.sums + num_rows * kLanes, 0.0f);
    std::fill(state.max, state.max + num_rows, -std::numeric_limits<float>::infinity());
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    PackRow<Arithmetic>(queries.q.at(row / queries.group, row % queries.group), scale,
                        queries.head_dim, state.q + row * state.row_size);
  }
}

// Adds the keys [begin, end) to the first `num_rows` rows of `queries`.
template <typename Arithmetic, typename Source>
void AttendKeys(const AttentionQueries& queries, int64_t num_rows, const Source& source,
                int64_t begin, int64_t end, const State<Arithmetic>& state) {
  const int64_t first_key = FirstKey(queries.first_position, queries.window);
  begin = std::max(begin, first_key / kKeyBlock * kKeyBlock);
  for (; begin < end; begin += kKeyBlock) {
    const Block<Arithmetic> block = LoadBlock(source, begin, end, queries.head_dim, state);
    // Earlier rows see no key of this block, and neither do rows with later windows.
    const int64_t first_row = std::max<int64_t>(0, begin - queries.first_position) * queries.group;
    int64_t end_row = num_rows;
    if (queries.window != 0) {
      const int64_t end_position = begin + kKeyBlock - 1 + queries.window;
      end_row = std::min(num_rows, (end_position - queries.first_position) * queries.group);
    }
    for (int64_t row = first_row; row < end_row; row += kTileRows) {
      AttendTile(queries, block, state, row, std::min<int64_t>(kTileRows, end_row - row), begin);
    }
  }
}

template <typename Arithmetic>
void AttendRows(const AttentionQueries& queries, const KeyRows& keys, float* memory) {
  const int64_t num_rows = NumRows(queries);
  const State<Arithmetic> state(memory, num_rows, queries.head_dim);
  LoadQueries(queries, state);
  AttendKeys(queries, num_rows, keys, 0, EndOf(queries), state);
  for (int64_t row = 0; row < num_rows; ++row) FinishRow(queries, state, row);
}

// Computes all rows with the shared keys, then each member with its own keys. Windows of members
// begin at different keys, so with windows no keys are shared.
template <typename Arithmetic>
void AttendMembers(std::span<const AttentionMember<typename Arithmetic::Element>> members,
                   int64_t num_shared, float* memory) {
  int64_t num_rows = 0;
  for (const auto& member : members) num_rows += NumRows(member.queries);
  const State<Arithmetic> state(memory, num_rows, members[0].queries.head_dim);
  int64_t first_row = 0;
  for (const auto& member : members) {
    LoadQueries(member.queries, state.FromRow(first_row));
    first_row += NumRows(member.queries);
  }
  AttentionQueries all = members[0].queries;
  if (all.window != 0) num_shared = 0;
  all.first_position = num_shared;  // or later: every row sees all of these keys
  AttendKeys(all, num_rows, members[0].keys, 0, num_shared, state);
  first_row = 0;
  for (const auto& [queries, keys] : members) {
    const State<Arithmetic> own = state.FromRow(first_row);
    AttendKeys(queries, NumRows(queries), keys, num_shared, EndOf(queries), own);
    for (int64_t row = 0; row < NumRows(queries); ++row) FinishRow(queries, own, row);
    first_row += NumRows(queries);
  }
}

}  // namespace lathe::worker::attention
