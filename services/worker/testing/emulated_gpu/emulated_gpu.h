// A GPU that the CPU emulates, for tests on machines without one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the device. Its tensors have torch's device type PrivateUse1, so everything that asks for
// a device takes the way of GPUs: torch's operations, our GPU kernels and transfers.
//
// Torch's operations run torch's CPU implementations, and our GPU kernels have host versions
// (emulated_kernels.cc). The device is stricter than a CPU:
//   - Host code that reads or writes device memory ends with a segmentation fault. Only operations
//     and kernels reach the memory, through a second mapping.
//   - An operation with tensors of the host and of the device throws, as on a GPU. A host scalar
//     is allowed.
//   - New memory holds NaN.
// Operations run at once, in the order of their calls: a missing wait does not show here.
at::Device EmulatedGpu();

// Work that the device received. A view or another change of metadata is no work.
struct DeviceLedger {
  std::map<std::string, int64_t> launches;  // by operation or own kernel
  // Bytes of device memory that the launches must read and write: each argument and each result
  // once. What a kernel reads twice, for example in tiles of a product, counts once.
  std::map<std::string, int64_t> bytes;
  std::map<std::string, int64_t> uploads;  // copies from the host, by dtype of the copy
  // Times that the host waited for the device's results: copies to the host, and operations whose
  // result or shape the host needs.
  std::map<std::string, int64_t> readbacks;

  int64_t num_launches() const;
  int64_t num_bytes() const;
  int64_t num_uploads() const;
  int64_t num_readbacks() const;
};

// Returns what was recorded since the last call, and starts anew. All threads share the ledger.
DeviceLedger TakeLedger();

// Work that one thread queued: that of a rank, if ranks are threads.
struct ThreadWork {
  int64_t num_launches = 0;
  int64_t num_readbacks = 0;
};

// The calling thread's work so far. A caller that moves data for a test may set it back.
ThreadWork& WorkOfThread();

// Returns one line for each entry, most frequent first.
std::string Describe(const DeviceLedger& ledger);

// For the host versions of kernels: the same memory through the mapping that the host may use.
// Null stays null. Throws if `pointer` is not device memory.
const void* HostAddress(const void* pointer);
template <typename T>
T* HostOf(T* pointer) {
  return static_cast<T*>(const_cast<void*>(HostAddress(pointer)));
}

// Bytes of the tensor's numbers. Numbers that lie at one address count once.
int64_t TensorBytes(const at::Tensor& x);

// Records a launch of one of our own kernels, with the bytes that it reads and writes.
void RecordLaunch(const char* kernel, int64_t num_bytes);

}  // namespace lathe::worker
