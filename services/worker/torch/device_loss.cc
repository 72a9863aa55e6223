#include "services/worker/torch/device_loss.h"

#include <algorithm>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

// The codes of CUDA whose documentation says that the process must end.
constexpr int kFatalCodes[] = {
    214,  // cudaErrorECCUncorrectable
    220,  // cudaErrorNvlinkUncorrectable
    226,  // cudaErrorContained
    700,  // cudaErrorIllegalAddress
    702,  // cudaErrorLaunchTimeout
    710,  // cudaErrorAssert
    714,  // cudaErrorHardwareStackError
    715,  // cudaErrorIllegalInstruction
    716,  // cudaErrorMisalignedAddress
    717,  // cudaErrorInvalidAddressSpace
    718,  // cudaErrorInvalidPc
    719,  // cudaErrorLaunchFailure
    721,  // cudaErrorTensorMemoryLeak
};

DeviceLossHandling& Handling() {
  static auto* const handling = new DeviceLossHandling{.probe = ProbeGpu};
  return *handling;
}

// Errors of calls that a stream does not allow while a graph is recorded.
constexpr int kFirstOfRecording = 900;
constexpr int kLastOfRecording = 908;

// Returns CUDA's code; 0: the error has none.
int CodeOf(const std::exception& error) {
  const auto* const device_error = dynamic_cast<const c10::AcceleratorError*>(&error);
  return device_error == nullptr ? 0 : device_error->get_error_code();
}

bool IsFatal(const std::exception& error) {
  return std::count(std::begin(kFatalCodes), std::end(kFatalCodes), CodeOf(error)) > 0;
}

}  // namespace

DeviceLossHandling SetDeviceLossHandling(DeviceLossHandling handling) {
  return std::exchange(Handling(), std::move(handling));
}

absl::Status ProbeGpu() {
  if (!at::hasCUDA()) return absl::OkStatus();
  try {
    // A probe must not be the first use, which would take memory of a GPU that nothing else uses.
    const auto& hooks = at::globalContext().getAcceleratorHooksInterface(at::kCUDA);
    if (!hooks.hasPrimaryContext(/*device_index=*/0)) return absl::OkStatus();
    const c10::impl::VirtualGuardImpl gpu(at::kCUDA);
    gpu.getStream(at::Device(at::kCUDA, 0)).query();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    const int code = CodeOf(error);
    const bool is_recording = code >= kFirstOfRecording && code <= kLastOfRecording;
    return is_recording ? absl::OkStatus() : absl::InternalError(MessageOf(error));
  }
}

void CheckForDeviceLoss(const std::exception& error) {
  if (IsOutOfMemory(error)) return;
  const DeviceLossHandling& handling = Handling();
  if (!handling.on_lost) return;
  if (IsFatal(error)) return handling.on_lost(MessageOf(error));
  // The error of another library may be the first sign. Only a call to the GPU tells.
  const absl::Status state = handling.probe();
  if (!state.ok()) handling.on_lost(std::string(state.message()));
}

}  // namespace lathe::worker
