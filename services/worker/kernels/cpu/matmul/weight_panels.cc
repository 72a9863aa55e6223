#include "services/worker/kernels/cpu/matmul/weight_panels.h"

#include <algorithm>
#include <cstring>

#include "services/worker/kernels/cpu/matmul/panel_block.h"

namespace lathe::worker {
namespace {

constexpr int64_t kVectorBytes = sizeof(Words);

// Writes the sixteen units at `source` of each of `count` rows to lanes [lane, lane + count) of
// `panel`, vector by vector. Only `num_bytes` of each row exist.
LATHE_INLINE void SetUnits(const char* source, int64_t row_bytes, int64_t num_bytes, int64_t lane,
                           int64_t count, Words* panel) {
  Words words[kLanes];
  if (count == kLanes && num_bytes == kVectorBytes) {
    for (int64_t i = 0; i < kLanes; ++i) {
      std::memcpy(&words[i], source + i * row_bytes, kVectorBytes);
    }
  } else {
    for (int64_t i = 0; i < kLanes; ++i) words[i] = Words{};
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&words[lane + i], source + i * row_bytes, static_cast<size_t>(num_bytes));
    }
  }
  Transpose(words);
  const int64_t num_units = (num_bytes + kUnitBytes - 1) / kUnitBytes;
  // Other lanes may already hold other rows.
  for (int64_t u = 0; u < num_units; ++u) panel[u * kPanelVectors] |= words[u];
}

}  // namespace

LATHE_SIMD_CLONES
void SetPanelRows(const WeightPanels& panels, void* data, const void* rows, int64_t first,
                  int64_t num_rows, int64_t begin, int64_t end) {
  const int64_t row_bytes = panels.k * kUnitBytes / panels.NumbersPerUnit();
  for (int64_t p = begin; p < end; ++p) {
    char* panel = static_cast<char*>(data) + p * panels.PanelBytes();
    for (int64_t v = 0; v < kPanelVectors; ++v) {
      const int64_t first_lane = p * kMatmulPanel + v * kLanes;
      const int64_t row = std::max(first_lane, first);
      const int64_t count = std::min(first_lane + kLanes, first + num_rows) - row;
      if (count <= 0) continue;
      const char* source = static_cast<const char*>(rows) + (row - first) * row_bytes;
      for (int64_t at = 0; at < row_bytes; at += kVectorBytes) {
        SetUnits(source + at, row_bytes, std::min(kVectorBytes, row_bytes - at), row - first_lane,
                 count, reinterpret_cast<Words*>(panel + at * kMatmulPanel) + v);
      }
    }
  }
}

void GetPanelRow(const WeightPanels& panels, int64_t row, float* y) {
  constexpr int64_t kStep = kMatmulPanel * kUnitBytes;
  const char* from = static_cast<const char*>(panels.data) +
                     row / kMatmulPanel * panels.PanelBytes() + row % kMatmulPanel * kUnitBytes;
  if (!panels.is_bf16) {
    for (int64_t i = 0; i < panels.k; ++i) std::memcpy(y + i, from + i * kStep, sizeof(float));
    return;
  }
  for (int64_t i = 0; i < panels.k; ++i) {
    uint16_t half;
    std::memcpy(&half, from + i / 2 * kStep + i % 2 * 2, sizeof(half));
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    std::memcpy(y + i, &bits, sizeof(bits));
  }
}

}  // namespace lathe::worker
