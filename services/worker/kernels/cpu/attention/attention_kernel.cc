#include "services/worker/kernels/cpu/attention/attention_kernel.h"

#include "services/worker/kernels/cpu/attention/attention_softmax.h"
#include "services/worker/kernels/cpu/attention/attention_tile.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the building blocks of this file

static_assert(kKvBlockTokens == kLanes);
static_assert(kAttentionKeyBlock == kKeyBlock);

constexpr int64_t kChunkRows = 192;

// One block of keys and values in the layout of the products.
struct Block {
  const float* keys[kKeyVectors];       // [head_dim, kLanes] each
  const float* values[kKeyVectors];     // kLanes rows of value_stride each
  const float* next_keys[kKeyVectors];  // of the block needed next
  int64_t value_stride;
};

// State of `num_rows` queries that is carried from block to block.
struct State : RunningRows {
  float* q;       // [rows, head_dim], scaled
  float* scores;  // [kTileRows, kKeyBlock]
  float* packed;  // scratch memory for a block
};

State Carve(float* scratch, int64_t num_rows, int64_t head_dim) {
  State state = {};
  state.padded_dim = RoundUp(head_dim, kLanes);
  const auto take = [&](int64_t size) {
    float* part = scratch;
    scratch += RoundUp(size, kLanes);
    return part;
  };
  state.scores = take(kTileRows * kKeyBlock);
  state.packed = take(2 * kKeyBlock * state.padded_dim);
  state.out = take(num_rows * state.padded_dim);
  state.sums = take(num_rows * kLanes);
  state.q = take(num_rows * head_dim);
  state.max = take(num_rows);
  return state;
}

// Loads keys and values of the block from position `first` on, up to `end`. Rows of a training pass
// are rearranged: their strides are large powers of two, which would map them to few places of the
// cache.
LATHE_INLINE Block LoadBlock(const KeyRows& source, int64_t first, int64_t end, int64_t head_dim,
                             const State& state) {
  const int64_t num_keys = std::min(kKeyBlock, end - first);
  float* keys = state.packed;
  float* values = state.packed + kKeyBlock * state.padded_dim;
  PackTransposed(source.keys + first * source.key_stride, source.key_stride, num_keys, head_dim,
                 keys);
  for (int64_t i = 0; i < num_keys; ++i) {
    CopyScaled(source.values + (first + i) * source.value_stride, 1.0f, head_dim, state.padded_dim,
               values + i * state.padded_dim);
  }
  Block loaded = {};
  for (int64_t v = 0; v < kKeyVectors; ++v) {
    loaded.keys[v] = keys + v * kLanes * head_dim;
    loaded.next_keys[v] = loaded.keys[v];
    loaded.values[v] = values + v * kLanes * state.padded_dim;
  }
  loaded.value_stride = state.padded_dim;
  return loaded;
}

// Uses blocks of the KV cache in place, unless rows of values do not fill whole vectors. The blocks
// are anywhere in memory, so hardware cannot predict the next one.
LATHE_INLINE Block LoadBlock(const KeyBlocks<float>& source, int64_t first, int64_t end,
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
    float* values = state.packed + v * kLanes * state.padded_dim;
    for (int64_t i = 0; i < std::min(kLanes, num_keys - v * kLanes); ++i) {
      CopyScaled(source.values + offset + i * head_dim, 1.0f, head_dim, state.padded_dim,
                 values + i * state.padded_dim);
    }
    loaded.values[v] = values;
  }
  return loaded;
}

// Adds a block of keys to the rows [row, row + num_rows).
template <typename Target>
LATHE_INLINE void AttendTile(const AttentionQueries& queries, const Block& block,
                             const State& state, int64_t row, int64_t num_rows,
                             int64_t block_begin) {
  const auto limit_of = [&](int64_t r) LATHE_INLINE_LAMBDA {
    const int64_t position = queries.first_position + r / queries.group;
    return std::min(kKeyBlock, position + 1 - block_begin);
  };
  const int64_t num_keys = limit_of(row + num_rows - 1);
  const int64_t num_vectors = (num_keys + kLanes - 1) / kLanes;
  const bool is_first = block_begin == 0;
  ScoreTile<Target>(state.q + row * queries.head_dim, queries.head_dim, num_rows, block.keys,
                    block.values, num_vectors, queries.head_dim, state.scores);
  float* out[kTileRows] = {};
  for (int64_t i = 0; i < num_rows; ++i) {
    float* scores = state.scores + i * kKeyBlock;
    Lanes values[kKeyVectors];
    for (int64_t v = 0; v < num_vectors; ++v) values[v] = Load(scores + v * kLanes);
    UpdateRow(state, row + i, limit_of(row + i), num_vectors, is_first, values);
    for (int64_t v = 0; v < num_vectors; ++v) Store(scores + v * kLanes, values[v]);
    out[i] = state.out + (row + i) * state.padded_dim;
  }
  WeighTile<Target>({state.scores, kKeyBlock, 1}, num_rows, block.values, block.next_keys, kLanes,
                    block.value_stride, num_keys, state.padded_dim, is_first, out);
}

int64_t NumRows(const AttentionQueries& queries) { return queries.num_positions * queries.group; }
int64_t EndOf(const AttentionQueries& queries) {
  return queries.first_position + queries.num_positions;
}

// Returns the part of `state` from `row` on.
State FromRow(State state, int64_t row, int64_t head_dim) {
  state.out += row * state.padded_dim;
  state.sums += row * kLanes;
  state.max += row;
  state.q += row * head_dim;
  return state;
}

LATHE_INLINE void LoadQueries(const AttentionQueries& queries, const State& state) {
  for (int64_t row = 0; row < NumRows(queries); ++row) {
    CopyScaled(queries.q.at(row / queries.group, row % queries.group), queries.scale * kLog2E,
               queries.head_dim, queries.head_dim, state.q + row * queries.head_dim);
  }
}

// Adds the keys [begin, end) to the first `num_rows` rows of `queries`.
template <typename Target, typename Source>
LATHE_INLINE void AttendKeys(const AttentionQueries& queries, int64_t num_rows,
                             const Source& source, int64_t begin, int64_t end, const State& state) {
  for (; begin < end; begin += kKeyBlock) {
    const Block block = LoadBlock(source, begin, end, queries.head_dim, state);
    // Earlier rows see no key of this block.
    const int64_t first_row = std::max<int64_t>(0, begin - queries.first_position) * queries.group;
    for (int64_t row = first_row; row < num_rows; row += kTileRows) {
      AttendTile<Target>(queries, block, state, row, std::min<int64_t>(kTileRows, num_rows - row),
                         begin);
    }
  }
}

template <typename Target>
LATHE_INLINE void AttendRows(const AttentionQueries& queries, const KeyRows& source,
                             float* scratch) {
  const int64_t num_rows = NumRows(queries);
  const State state = Carve(scratch, num_rows, queries.head_dim);
  LoadQueries(queries, state);
  AttendKeys<Target>(queries, num_rows, source, 0, EndOf(queries), state);
  for (int64_t row = 0; row < num_rows; ++row) FinishRow(queries, state, row);
}

// Computes all rows with the shared keys, then each member with its own keys.
template <typename Target>
LATHE_INLINE void AttendMembers(std::span<const AttentionMember<float>> members, int64_t num_shared,
                                float* scratch) {
  const int64_t head_dim = members[0].queries.head_dim;
  int64_t num_rows = 0;
  for (const AttentionMember<float>& member : members) num_rows += NumRows(member.queries);
  const State state = Carve(scratch, num_rows, head_dim);
  int64_t first_row = 0;
  for (const AttentionMember<float>& member : members) {
    LoadQueries(member.queries, FromRow(state, first_row, head_dim));
    first_row += NumRows(member.queries);
  }
  AttentionQueries queries = members[0].queries;
  queries.first_position = num_shared;  // or later: every row sees all of these keys
  KeyBlocks<float> keys = members[0].keys;
  State part = state;
  int64_t end = num_shared;
  first_row = 0;
  for (size_t i = 0;; ++i) {
    AttendKeys<Target>(queries, num_rows, keys, i == 0 ? 0 : num_shared, end, part);
    for (int64_t row = 0; i > 0 && row < num_rows; ++row) FinishRow(queries, part, row);
    if (i == members.size()) return;
    queries = members[i].queries;
    keys = members[i].keys;
    part = FromRow(state, first_row, head_dim);
    end = EndOf(queries);
    num_rows = NumRows(queries);
    first_row += num_rows;
  }
}

LATHE_WIDE_TARGET void AttendWide(const AttentionQueries& queries, const KeyRows& source,
                                  float* scratch) {
  AttendRows<WideTarget>(queries, source, scratch);
}

LATHE_WIDE_TARGET void AttendGroupWide(std::span<const AttentionMember<float>> members,
                                       int64_t num_shared, float* scratch) {
  AttendMembers<WideTarget>(members, num_shared, scratch);
}

LATHE_NARROW_TARGET void AttendNarrow(const AttentionQueries& queries, const KeyRows& source,
                                      float* scratch) {
  AttendRows<NarrowTarget>(queries, source, scratch);
}

LATHE_NARROW_TARGET void AttendGroupNarrow(std::span<const AttentionMember<float>> members,
                                           int64_t num_shared, float* scratch) {
  AttendMembers<NarrowTarget>(members, num_shared, scratch);
}

void AttendPlain(const AttentionQueries& queries, const KeyRows& source, float* scratch) {
  AttendRows<PlainTarget>(queries, source, scratch);
}

void AttendGroupPlain(std::span<const AttentionMember<float>> members, int64_t num_shared,
                      float* scratch) {
  AttendMembers<PlainTarget>(members, num_shared, scratch);
}

}  // namespace

int64_t AttentionChunk(int64_t group) { return std::max<int64_t>(1, kChunkRows / group); }

int64_t AttentionScratchSize(int64_t num_rows, int64_t head_dim) {
  const int64_t padded_dim = RoundUp(head_dim, kLanes);
  return kTileRows * kKeyBlock + 2 * kKeyBlock * padded_dim +
         num_rows * (2 * padded_dim + kLanes + 1) + 4 * kLanes;
}

void Attend(const AttentionQueries& queries, const KeyRows& keys, float* scratch) {
  ForThisMachine(AttendWide, AttendNarrow, AttendPlain)(queries, keys, scratch);
}

void AttendGroup(std::span<const AttentionMember<float>> members, int64_t num_shared,
                 float* scratch) {
  ForThisMachine(AttendGroupWide, AttendGroupNarrow, AttendGroupPlain)(members, num_shared,
                                                                       scratch);
}

}  // namespace lathe::worker
