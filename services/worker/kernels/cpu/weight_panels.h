// Hot file, free of torch: how a frozen matrix lies in memory on a CPU, in one copy that products,
// gradients and look-ups of rows read as it is.
//
// Legend: a unit is what one multiply-add of a lane takes of a row of the matrix, four bytes: two
// bf16 numbers side by side, or one fp32 number. A panel holds kMatmulPanel rows of the matrix
// (columns of the product x W^T), unit by unit: [units][64 rows][4 bytes]. Panels lie one behind
// the other. What fills up the last panel, and the last unit of an odd bf16 row, is zero.
#pragma once

#include <cstdint>

namespace lathe::worker {

// Columns of the output that one thread works on at a time.
inline constexpr int64_t kMatmulPanel = 64;
inline constexpr int64_t kUnitBytes = 4;

struct WeightPanels {
  const void* data;  // aligned to 64 bytes
  bool is_bf16;      // or fp32
  int64_t n;         // rows of the matrix, out_features
  int64_t k;         // numbers of a row, in_features

  int64_t NumbersPerUnit() const { return is_bf16 ? 2 : 1; }
  int64_t NumPanels() const { return (n + kMatmulPanel - 1) / kMatmulPanel; }
  int64_t PanelBytes() const {
    return (k + NumbersPerUnit() - 1) / NumbersPerUnit() * kMatmulPanel * kUnitBytes;
  }
  int64_t NumBytes() const { return NumPanels() * PanelBytes(); }
};

// Writes what the panels [begin, end) hold of rows [first, first + num_rows), which lie at `rows`
// one behind the other in the panels' dtype. `data` holds zero there.
void SetPanelRows(const WeightPanels& panels, void* data, const void* rows, int64_t first,
                  int64_t num_rows, int64_t begin, int64_t end);

// y [k] fp32 = row `row` of the matrix.
void GetPanelRow(const WeightPanels& panels, int64_t row, float* y);

}  // namespace lathe::worker
