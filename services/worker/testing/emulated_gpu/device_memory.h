// Memory of the emulated GPU.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lathe::worker {

// Address space that is mapped twice: at device addresses, which nobody may access, and at host
// addresses. A host address is its device address plus a constant. Thread-safe.
class DeviceMemory {
 public:
  // Lives as long as the process, because tensors of static storage may outlive everything else.
  static DeviceMemory& Get();

  // Returns the device address of `num_bytes` bytes that are NaN in all floating-point formats.
  void* Allocate(size_t num_bytes);
  void Free(void* pointer);

  // Throws if `pointer` is no device address.
  void* HostAddress(const void* pointer) const;

 private:
  DeviceMemory();
  size_t SizeOf(size_t num_bytes) const;

  char* base_ = nullptr;
  absl::Mutex mu_;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<void*, size_t> sizes_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, std::vector<void*>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
