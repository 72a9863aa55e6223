#include "services/worker/memory/tensor_memory.h"

#include <memory>
#include <optional>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "services/worker/memory/block_cache.h"

namespace lathe::worker {
namespace {

// malloc reuses smaller blocks itself.
constexpr size_t kMinBlockBytes = size_t{1} << 20;
// Larger tensors are not a step's temporaries. They are made once, and mapped as they are used.
constexpr size_t kMaxBlockBytes = size_t{1} << 30;
// Must exceed 0, the priority of c10's own allocator.
constexpr uint8_t kPriority = 1;

struct TensorBlock {
  BlockCache* cache;
  BlockCache::Block block = {};
};

void ReturnBlock(void* context) {
  const std::unique_ptr<TensorBlock> owned(static_cast<TensorBlock*>(context));
  owned->cache->Return(owned->block);
}

// Lives as long as the process, like all allocators of c10.
class TensorAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kMinBlockBytes || bytes > kMaxBlockBytes) return other_.allocate(bytes);
    auto owned = std::unique_ptr<TensorBlock>(new TensorBlock{&cache_});
    const std::optional<BlockCache::Block> block = cache_.Take(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block.has_value(), "can't allocate ", bytes,
                     " bytes for a tensor");
    owned->block = *block;
    return {block->data, owned.release(), &ReturnBlock, at::Device(at::kCPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  BlockCache& cache() { return cache_; }

 private:
  c10::Allocator& other_ = *c10::GetDefaultCPUAllocator();
  BlockCache cache_;
};

// Returns null before UseBlockCacheForTensors.
TensorAllocator* InUse() { return dynamic_cast<TensorAllocator*>(c10::GetCPUAllocator()); }

}  // namespace

void UseBlockCacheForTensors() {
  if (InUse() == nullptr) c10::SetCPUAllocator(new TensorAllocator, kPriority);
}

void EndTensorMemoryPeriod() {
  if (TensorAllocator* allocator = InUse()) allocator->cache().EndPeriod();
}

void FreeUnusedTensorMemory() {
  if (TensorAllocator* allocator = InUse()) allocator->cache().Clear();
}

size_t UnusedTensorMemoryBytes() {
  TensorAllocator* const allocator = InUse();
  return allocator == nullptr ? 0 : allocator->cache().counters().bytes_kept;
}

}  // namespace lathe::worker
