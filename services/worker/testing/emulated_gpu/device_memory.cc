#include "services/worker/testing/emulated_gpu/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

constexpr size_t kCapacity = size_t{4} << 30;  // of address space; pages come with their first use
constexpr size_t kAlignment = 512;             // as CUDA's allocator
constexpr int kNan = 0xff;                     // of bf16, fp32 and fp64, in every byte

}  // namespace

DeviceMemory& DeviceMemory::Get() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() {
  void* const both =
      mmap(nullptr, 2 * kCapacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(both != MAP_FAILED, "no address space for an emulated GPU");
  base_ = static_cast<char*>(both);
  TORCH_CHECK(mprotect(base_ + kCapacity, kCapacity, PROT_READ | PROT_WRITE) == 0,
              "no memory for an emulated GPU");
}

size_t DeviceMemory::SizeOf(size_t num_bytes) const {
  return std::max(kAlignment, std::bit_ceil(num_bytes));
}

void* DeviceMemory::Allocate(size_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  const size_t size = SizeOf(num_bytes);
  void* pointer = nullptr;
  {
    const absl::MutexLock lock(&mu_);
    std::vector<void*>& free = free_[size];
    if (!free.empty()) {
      pointer = free.back();
      free.pop_back();
    } else {
      TORCH_CHECK(used_ + size <= kCapacity, "the emulated GPU's memory is full");
      pointer = base_ + used_;
      used_ += size;
    }
    sizes_[pointer] = size;
  }
  std::memset(HostAddress(pointer), kNan, num_bytes);
  return pointer;
}

void DeviceMemory::Free(void* pointer) {
  if (pointer == nullptr) return;
  const absl::MutexLock lock(&mu_);
  const auto found = sizes_.find(pointer);
  free_[found->second].push_back(pointer);
  sizes_.erase(found);
}

void* DeviceMemory::HostAddress(const void* pointer) const {
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  TORCH_CHECK(address >= base_ && address < base_ + kCapacity,
              "a kernel of the emulated GPU got an address of the host");
  return address + kCapacity;
}

}  // namespace lathe::worker
