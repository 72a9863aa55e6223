#include "services/worker/kernels/cpu/matmul/weight_panels.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

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
  if (count == kLanes) {
    // Fresh memory is written and not read first: a page that was read is the kernel's zero page,
    // which the write then replaces, and every thread has to forget it.
    for (int64_t u = 0; u < num_units; ++u) panel[u * kPanelVectors] = words[u];
    return;
  }
  // Other lanes may already hold other rows.
  for (int64_t u = 0; u < num_units; ++u) panel[u * kPanelVectors] |= words[u];
}

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
constexpr uintptr_t kPage = uintptr_t{4} << 10;

uintptr_t RoundUp(uintptr_t value, uintptr_t step) { return (value + step - 1) / step * step; }

void Unmap(uintptr_t begin, uintptr_t end) {
  if (end > begin) munmap(reinterpret_cast<void*>(begin), end - begin);
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

std::shared_ptr<void> AllocateHugePages(int64_t num_bytes) {
  const uintptr_t size = RoundUp(static_cast<uintptr_t>(num_bytes), kPage);
  void* const mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  // Unmaps the memory around the aligned part, so that no huge page extends beyond it.
  const auto first = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t begin = RoundUp(first, kHugePage);
  Unmap(first, begin);
  Unmap(begin + size, first + size + kHugePage);
  void* const memory = reinterpret_cast<void*>(begin);
  madvise(memory, size, MADV_HUGEPAGE);  // only a hint: without huge pages it is slower
  return {memory, [size](void* data) { munmap(data, size); }};
}

}  // namespace lathe::worker
