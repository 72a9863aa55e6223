#include "services/worker/lora/lora_plan.h"

#include <algorithm>

#include "services/worker/kernels/cpu/lora/lora_kernel.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

constexpr int64_t kTileRows = 32;
// With few rows: factors per task, and columns of a wide output per task.
constexpr int64_t kFactors = 8;
constexpr int64_t kRowColumns = 1024;

// Rows of one span that are computed together, counted from the span's first row.
struct Tile {
  const LoraSpan* span;
  int64_t begin;
  int64_t end;
};

std::vector<Tile> MakeTiles(const LoraPlan& plan) {
  int64_t num_rows = 0;
  for (const LoraSpan& span : plan.spans) num_rows += span.end - span.begin;
  const int64_t share = num_rows / (kTasksPerThread * ComputeTeam().num_threads());
  const int64_t tile_rows = std::clamp<int64_t>((share + 3) / 4 * 4, 4, kTileRows);
  std::vector<Tile> tiles;
  for (const LoraSpan& span : plan.spans) {
    const int64_t rows = span.end - span.begin;
    for (int64_t row = 0; row < rows; row += tile_rows) {
      tiles.push_back({&span, row, std::min(row + tile_rows, rows)});
    }
  }
  return tiles;
}

// products = scaling * x A^T for factors [first, end) of the span.
void Reduce(const LoraPlan& plan, const Tile& tile, int64_t first, int64_t end, float* products) {
  const LoraSpan& span = *tile.span;
  LoraDots({.x = plan.x.Row(span.begin),
            .x_stride = plan.x.stride,
            .width = plan.x.width,
            .factors = span.a.data() + first,
            .num_factors = end - first,
            .scale = span.scaling,
            .out = products + span.offset + first,
            .out_stride = span.num_factors()},
           tile.begin, tile.end);
}

void Reduce(const LoraPlan& plan, const Tile& tile, float* products) {
  Reduce(plan, tile, 0, tile.span->num_factors(), products);
}

// y += products B^T for columns [begin, end) of one pair.
void Expand(const LoraPlan& plan, const Tile& tile, const LoraPlanPair& pair, const float* products,
            int64_t begin, int64_t end) {
  const LoraSpan& span = *tile.span;
  const RowView& y = plan.y[pair.part];
  LoraSums({.c = products + span.offset + pair.first,
            .c_stride = span.num_factors(),
            .factors = span.b.data() + pair.first,
            .num_factors = pair.rank,
            .y = y.Row(span.begin),
            .y_stride = y.stride},
           tile.begin, tile.end, begin, end);
}

void ReduceAndExpand(const LoraPlan& plan, const Tile& tile, float* products) {
  Reduce(plan, tile, products);
  for (const LoraPlanPair& pair : tile.span->pairs) {
    Expand(plan, tile, pair, products, 0, plan.y[pair.part].width);
  }
}

// Variant for few rows, which also divides factors and output columns over threads.
void ReduceThenExpand(const LoraPlan& plan, const std::vector<Tile>& tiles, float* products) {
  struct Stretch {
    const Tile* tile;
    const LoraPlanPair* pair;  // set for an expansion
    int64_t begin;             // factor or column
  };
  std::vector<Stretch> reductions;
  std::vector<Stretch> expansions;
  for (const Tile& tile : tiles) {
    for (int64_t j = 0; j < tile.span->num_factors(); j += kFactors) {
      reductions.push_back({&tile, nullptr, j});
    }
    for (const LoraPlanPair& pair : tile.span->pairs) {
      for (int64_t n = 0; n < plan.y[pair.part].width; n += kRowColumns) {
        expansions.push_back({&tile, &pair, n});
      }
    }
  }
  ForTasks(static_cast<int64_t>(reductions.size()), plan.cost, [&](int64_t i) {
    const auto& [tile, pair, begin] = reductions[i];
    Reduce(plan, *tile, begin, std::min(begin + kFactors, tile->span->num_factors()), products);
  });
  ForTasks(static_cast<int64_t>(expansions.size()), plan.cost, [&](int64_t i) {
    const auto& [tile, pair, begin] = expansions[i];
    Expand(plan, *tile, *pair, products, begin,
           std::min(begin + kRowColumns, plan.y[pair->part].width));
  });
}

// dproducts = scaling * dy B, then dx += dproducts A.
void ReduceGradient(const LoraPlan& plan, const Tile& tile, float* dproducts, const RowView& dx) {
  const LoraSpan& span = *tile.span;
  float* out = dproducts + span.offset;
  for (const LoraPlanPair& pair : span.pairs) {
    const RowView& dy = plan.y[pair.part];
    LoraDots({.x = dy.Row(span.begin),
              .x_stride = dy.stride,
              .width = dy.width,
              .factors = span.b.data() + pair.first,
              .num_factors = pair.rank,
              .scale = span.scaling,
              .out = out + pair.first,
              .out_stride = span.num_factors()},
             tile.begin, tile.end);
  }
  LoraSums({.c = out,
            .c_stride = span.num_factors(),
            .factors = span.a.data(),
            .num_factors = span.num_factors(),
            .y = dx.Row(span.begin),
            .y_stride = dx.stride},
           tile.begin, tile.end, 0, dx.width);
}

}  // namespace

void AddLoraRows(const LoraPlan& plan) {
  if (plan.spans.empty()) return;
  const std::vector<Tile> tiles = MakeTiles(plan);
  const auto num_tiles = static_cast<int64_t>(tiles.size());
  const at::Tensor buffer = at::empty({plan.num_products}, at::kFloat);
  auto* products = buffer.mutable_data_ptr<float>();
  const int64_t num_threads = ComputeTeam().num_threads();
  if (num_tiles < kTasksPerThread * num_threads && num_tiles % num_threads != 0) {
    ReduceThenExpand(plan, tiles, products);
  } else {
    ForTasks(num_tiles, plan.cost, [&](int64_t i) { ReduceAndExpand(plan, tiles[i], products); });
  }
}

void AddLoraRowsBackward(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                         const std::vector<AdapterGradients*>& gradients, const at::Tensor& dx) {
  if (plan.spans.empty()) return;
  const std::vector<Tile> tiles = MakeTiles(plan);
  const RowView dx_rows = ViewOf(dx);
  const at::Tensor buffer = at::empty({2, plan.num_products}, at::kFloat);
  auto* products = buffer.mutable_data_ptr<float>();
  float* dproducts = products + plan.num_products;
  ForTasks(static_cast<int64_t>(tiles.size()), 2 * plan.cost, [&](int64_t i) {
    // x A^T is recomputed: this costs a few percent and saves [T, rank] per linear and layer.
    Reduce(plan, tiles[i], products);
    ReduceGradient(plan, tiles[i], dproducts, dx_rows);
  });
  AddLoraGradients(plan, parts, gradients, products, dproducts);
}

}  // namespace lathe::worker
