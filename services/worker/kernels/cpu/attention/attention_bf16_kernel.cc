#include "services/worker/kernels/cpu/attention/attention_bf16_tile.h"
#include "services/worker/kernels/cpu/attention/attention_kernel.h"
#include "services/worker/kernels/cpu/attention/attention_softmax.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the building blocks of this file

static_assert(kKvBlockTokens == kLanes);
static_assert(kAttentionKeyBlock == kKeyBlock);

constexpr int64_t kChunkRows = 384;

// One block of keys and values in the layout of the products.
struct Block {
  const int32_t* keys[kKeyVectors];       // [head_dim / 2, kLanes] each
  const int32_t* values[kKeyVectors];     // kLanes / 2 rows of value_stride each
  const int32_t* next_keys[kKeyVectors];  // of the block needed next
  int64_t value_stride;
};

// State of the queries that is carried from block to block.
struct State : RunningRows {
  int32_t* q;        // [rows, padded head_dim / 2]
  float* scores;     // [kTileRows, kKeyBlock]
  int32_t* weights;  // [kTileRows, kKeyBlockWords]
  int32_t* packed;   // scratch memory for a block
};

State Carve(float* scratch, int64_t num_rows, int64_t head_dim) {
  State state = {};
  state.padded_dim = RoundUp(head_dim, kLanes);
  const auto take = [&](int64_t size) {
    float* part = scratch;
    scratch += RoundUp(size, kLanes);
    return part;
  };
  const auto take_words = [&](int64_t size) { return reinterpret_cast<int32_t*>(take(size)); };
  state.scores = take(kTileRows * kKeyBlock);
  state.weights = take_words(kTileRows * kKeyBlockWords);
  state.packed = take_words(kKeyBlock * state.padded_dim);
  state.out = take(num_rows * state.padded_dim);
  state.sums = take(num_rows * kLanes);
  state.q = take_words(num_rows * state.padded_dim / kWordNumbers);
  state.max = take(num_rows);
  return state;
}

LATHE_BF16_TARGET LATHE_INLINE Block LoadBlock(const KeyRows& source, int64_t first, int64_t end,
                                               int64_t head_dim, const State& state) {
  const int64_t num_keys = std::min(kKeyBlock, end - first);
  int32_t* keys = state.packed;
  int32_t* values = state.packed + kKeyBlock * state.padded_dim / kWordNumbers;
  PackTransposedWords(source.keys + first * source.key_stride, source.key_stride, num_keys,
                      head_dim, keys);
  for (int64_t i = 0; i < num_keys; i += kWordNumbers) {
    const float* value = source.values + (first + i) * source.value_stride;
    ZipRows(value, i + 1 < num_keys ? value + source.value_stride : nullptr, head_dim,
            values + i / kWordNumbers * state.padded_dim);
  }
  Block loaded = {};
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    loaded.keys[v] = keys + v * kLaneWords * head_dim;
    loaded.next_keys[v] = loaded.keys[v];
    loaded.values[v] = values + v * kLaneWords * state.padded_dim;
  }
  loaded.value_stride = state.padded_dim;
  return loaded;
}

// Uses blocks of the KV cache in place, unless rows of values do not fill whole vectors. The blocks
// are anywhere in memory, so hardware cannot predict the next one.
LATHE_INLINE Block LoadBlock(const KeyBlocks<int32_t>& source, int64_t first, int64_t end,
                             int64_t head_dim, const State& state) {
  const int64_t num_keys = std::min(kKeyBlock, end - first);
  const int64_t last = (end - 1) / kLanes;
  Block loaded = {};
  loaded.value_stride = state.padded_dim;
  for (int64_t v = 0; v * kLanes < num_keys; ++v) {
    const int64_t cache_block = first / kLanes + v;
    const int64_t offset = source.blocks[cache_block] * source.block_stride;
    loaded.keys[v] = source.keys + offset;
    loaded.values[v] = source.values + offset;
    loaded.next_keys[v] = source.keys + source.blocks[std::min(cache_block + kKeyVectors, last)] *
                                            source.block_stride;
    if (head_dim == state.padded_dim) continue;
    int32_t* values = state.packed + v * kLaneWords * state.padded_dim;
    for (int64_t i = 0; i < kLaneWords; ++i) {
      int32_t* row = values + i * state.padded_dim;
      std::copy_n(source.values + offset + i * head_dim, head_dim, row);
      std::fill(row + head_dim, row + state.padded_dim, 0);
    }
    loaded.values[v] = values;
  }
  return loaded;
}

// Stores the weights of one row, rounded, up to the end of its block.
LATHE_BF16_TARGET LATHE_INLINE void StoreWeights(const Lanes (&weights)[kKeyVectors],
                                                 int32_t* words) {
#pragma GCC unroll 2
  for (int64_t v = 0; v < kKeyVectors; v += 2) {
    StoreWords(words + v * kLaneWords, RoundPair(weights[v], weights[v + 1]));
  }
}

// Adds a block of keys to the rows [row, row + num_rows).
LATHE_BF16_TARGET LATHE_INLINE void AttendTile(const AttentionQueries& queries, const Block& block,
                                               const State& state, int64_t row, int64_t num_rows,
                                               int64_t block_begin) {
  const auto limit_of = [&](int64_t r) LATHE_INLINE_LAMBDA {
    const int64_t position = queries.first_position + r / queries.group;
    return std::min(kKeyBlock, position + 1 - block_begin);
  };
  const int64_t num_keys = limit_of(row + num_rows - 1);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const bool is_first = block_begin == 0;
  const float scale = queries.scale * kLog2E;
  const int64_t row_words = state.padded_dim / kWordNumbers;
  ScoreTileBf16(state.q + row * row_words, row_words, num_rows, block.keys, block.values,
                num_vectors, queries.head_dim / kWordNumbers, state.scores);
  float* out[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) {
    const float* scores = state.scores + i * kKeyBlock;
    Lanes values[kKeyVectors] = {};
    for (int64_t v = 0; v < num_vectors; ++v) values[v] = Load(scores + v * kLanes) * scale;
    UpdateRow(state, row + i, limit_of(row + i), num_vectors, is_first, values);
    StoreWeights(values, state.weights + i * kKeyBlockWords);
    out[i] = state.out + (row + i) * state.padded_dim;
  }
  WeighTileBf16({state.weights, kKeyBlockWords, 1}, num_rows, block.values, block.next_keys,
                kLaneWords, block.value_stride, (num_keys + 1) / kWordNumbers, state.padded_dim,
                is_first, out);
}

int64_t NumRows(const AttentionQueries& queries) { return queries.num_positions * queries.group; }
int64_t EndOf(const AttentionQueries& queries) {
  return queries.first_position + queries.num_positions;
}

// Returns the part of `state` from `row` on.
State FromRow(State state, int64_t row) {
  state.out += row * state.padded_dim;
  state.sums += row * kLanes;
  state.max += row;
  state.q += row * state.padded_dim / kWordNumbers;
  return state;
}

LATHE_BF16_TARGET void LoadQueries(const AttentionQueries& queries, const State& state) {
  for (int64_t row = 0; row < NumRows(queries); ++row) {
    RoundRow(queries.q.at(row / queries.group, row % queries.group), queries.head_dim,
             state.q + row * state.padded_dim / kWordNumbers);
  }
}

// Adds the keys [begin, end) to the first `num_rows` rows of `queries`.
template <typename Source>
LATHE_BF16_TARGET void AttendKeys(const AttentionQueries& queries, int64_t num_rows,
                                  const Source& source, int64_t begin, int64_t end,
                                  const State& state) {
  for (; begin < end; begin += kKeyBlock) {
    const Block block = LoadBlock(source, begin, end, queries.head_dim, state);
    // Earlier rows see no key of this block.
    const int64_t first_row = std::max<int64_t>(0, begin - queries.first_position) * queries.group;
    for (int64_t row = first_row; row < num_rows; row += kTileRows) {
      AttendTile(queries, block, state, row, std::min<int64_t>(kTileRows, num_rows - row), begin);
    }
  }
}

}  // namespace

int64_t AttentionChunkBf16(int64_t group) { return std::max<int64_t>(1, kChunkRows / group); }

LATHE_BF16_TARGET
void AttendBf16(const AttentionQueries& queries, const KeyRows& keys, float* scratch) {
  const int64_t num_rows = NumRows(queries);
  const State state = Carve(scratch, num_rows, queries.head_dim);
  LoadQueries(queries, state);
  AttendKeys(queries, num_rows, keys, 0, EndOf(queries), state);
  for (int64_t row = 0; row < num_rows; ++row) FinishRow(queries, state, row);
}

LATHE_BF16_TARGET
void AttendGroupBf16(std::span<const AttentionMember<int32_t>> members, int64_t num_shared,
                     float* scratch) {
  int64_t num_rows = 0;
  for (const auto& member : members) num_rows += NumRows(member.queries);
  const State state = Carve(scratch, num_rows, members[0].queries.head_dim);
  int64_t first_row = 0;
  for (const auto& member : members) {
    LoadQueries(member.queries, FromRow(state, first_row));
    first_row += NumRows(member.queries);
  }
  AttentionQueries all = members[0].queries;
  all.first_position = num_shared;  // or later: every row sees all of these keys
  AttendKeys(all, num_rows, members[0].keys, 0, num_shared, state);
  first_row = 0;
  for (const auto& [queries, keys] : members) {
    const State own = FromRow(state, first_row);
    AttendKeys(queries, NumRows(queries), keys, num_shared, EndOf(queries), own);
    for (int64_t row = 0; row < NumRows(queries); ++row) FinishRow(queries, own, row);
    first_row += NumRows(queries);
  }
}

}  // namespace lathe::worker
