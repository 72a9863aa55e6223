#include "services/worker/torch/torch_guard.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "services/worker/torch/device_loss.h"

namespace lathe::worker {
namespace {

// cudaErrorMemoryAllocation, for example when a graph is instantiated.
constexpr int kMemoryAllocation = 2;
// Words of errors whose type does not tell that memory is short.
constexpr const char* kWordsForNoMemory[] = {
    "DefaultCPUAllocator: can't allocate memory",
    // cuBLAS and cuBLASLt allocate workspaces and handles.
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    // CUDA's driver loads modules. Lathe's own kernels give CUDA's words too.
    "out of memory",
};

}  // namespace

bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  const auto* const device_error = dynamic_cast<const c10::AcceleratorError*>(&error);
  if (device_error != nullptr && device_error->get_error_code() == kMemoryAllocation) return true;
  const std::string message = MessageOf(error);
  return std::any_of(
      std::begin(kWordsForNoMemory), std::end(kWordsForNoMemory),
      [&](const char* words) { return std::strstr(message.c_str(), words) != nullptr; });
}

std::string MessageOf(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

void ThrowDeviceError(int code) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code,
                              absl::StrCat("CUDA error ", code, " of a fail point"));
}

absl::Status StatusOfException(const char* what, const std::exception& error) {
  if (IsOutOfMemory(error)) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory in ", what));
  }
  CheckForDeviceLoss(error);
  return absl::InternalError(absl::StrCat(what, " failed: ", MessageOf(error)));
}

}  // namespace lathe::worker
