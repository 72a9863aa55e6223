// These functions wait for a GPU and read its memory use. They do nothing for the CPU.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline at::DeviceIndex IndexOf(at::Device device) {
  return device.has_index() ? device.index() : at::DeviceIndex{0};
}

// Returns when the GPU has done all that was queued: a measured time must contain it.
inline void WaitForDevice(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(IndexOf(device));
}

inline void ResetDevicePeak(at::Device device) {
  if (device.is_cpu()) return;
  at::getDeviceAllocator(device.type())->resetPeakStats(IndexOf(device));
}

// Returns the most memory that tensors occupied on the GPU since ResetDevicePeak; 0 for the CPU.
inline int64_t DevicePeakMib(at::Device device) {
  if (device.is_cpu()) return 0;
  return at::getDeviceAllocator(device.type())
             ->getDeviceStats(IndexOf(device))
             .allocated_bytes[0]
             .peak >>
         20;
}

}  // namespace lathe::worker
