#include "services/worker/kernels/cpu/matmul/huge_pages.h"

#include <sys/mman.h>

#include <new>

namespace lathe::worker {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
constexpr uintptr_t kPage = uintptr_t{4} << 10;

uintptr_t RoundUp(uintptr_t value, uintptr_t step) { return (value + step - 1) / step * step; }

void Unmap(uintptr_t begin, uintptr_t end) {
  if (end > begin) munmap(reinterpret_cast<void*>(begin), end - begin);
}

}  // namespace

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
