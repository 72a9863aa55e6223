// A buffer of the emulated device, for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "services/worker/kernels/emulation/device.h"

namespace lathe::worker::emulation {

// Owns memory as cudaMalloc gives it. Around it lies some that no kernel may touch.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Numbers that kernels may change, or only read.
  DeviceBuffer(std::string name, const std::vector<T>& numbers,
               Contents contents = Contents::kNumbers)
      : DeviceBuffer(std::move(name), numbers.size(), contents) {
    std::memcpy(data_, numbers.data(), sizeof(T) * size_);
  }

  // Numbers that nobody has written.
  DeviceBuffer(std::string name, size_t size)
      : DeviceBuffer(std::move(name), size, Contents::kNothing) {}

  ~DeviceBuffer() { Device::Get().memory().RemoveBuffer(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T operator[](size_t index) const { return data_[index]; }
  std::vector<T> numbers() const { return {data_, data_ + size_}; }
  size_t num_unwritten_bytes() const { return Device::Get().memory().NumUnwritten(data_); }

 private:
  static constexpr size_t kAlignment = 256;  // as of cudaMalloc
  static constexpr size_t kGuardBytes = 4096;

  DeviceBuffer(std::string name, size_t size, Contents contents)
      : size_(size), memory_(new std::byte[sizeof(T) * size + 2 * kGuardBytes]) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get()) + kGuardBytes;
    data_ = reinterpret_cast<T*>(address / kAlignment * kAlignment);
    Device::Get().memory().AddBuffer(data_, sizeof(T) * size, std::move(name), contents);
  }

  const size_t size_;
  const std::unique_ptr<std::byte[]> memory_;
  T* data_;
};

}  // namespace lathe::worker::emulation
