// Hot file, free of torch: the memory layout of a frozen matrix on a CPU. Products, gradients and
// row look-ups all read this one copy.
//
// Legend: a unit is the four bytes of a matrix row that one multiply-add of a lane uses: two
// adjacent bf16 numbers, or one fp32 number. A panel holds kMatmulPanel rows of the matrix (columns
// of the product x W^T), unit by unit: [units][64 rows][4 bytes]. Panels are contiguous. The
// padding of the last panel, and of the last unit of an odd bf16 row, is zero.
#pragma once

#include <cstdint>
#include <memory>

namespace lathe::worker {

// Columns of the output that one thread computes at a time.
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

// Writes to panels [begin, end) their part of rows [first, first + num_rows). `rows` is contiguous
// and has the panels' dtype. `data` must hold zero there.
void SetPanelRows(const WeightPanels& panels, void* data, const void* rows, int64_t first,
                  int64_t num_rows, int64_t begin, int64_t end);

// Writes row `row` of the matrix to y [k] in fp32.
void GetPanelRow(const WeightPanels& panels, int64_t row, float* y);

// Returns memory for data that is read sequentially again and again, like a model's weights.
// Allocates `num_bytes` > 0 of zeros, aligned to a huge page and in huge pages if the system has
// them, which makes sequential reads about 1.5 times as fast. Throws bad_alloc.
std::shared_ptr<void> AllocateHugePages(int64_t num_bytes);

}  // namespace lathe::worker
