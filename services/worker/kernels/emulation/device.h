// The emulated device: its memory, and the kernel that runs.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "services/worker/kernels/emulation/block_threads.h"
#include "services/worker/kernels/emulation/launch.h"
#include "services/worker/kernels/emulation/shadow_memory.h"

namespace lathe::worker::emulation {

class Device {
 public:
  // Returns the only one. Kernels have no parameter for it, as on a GPU.
  static Device& Get();

  ShadowMemory& memory() { return memory_; }
  BlockThreads& threads() { return threads_; }
  void SetSeed(uint64_t seed) { random_.seed(seed); }

  // See launch.h.
  int Run(const Extent& grid, const Extent& block, size_t shared_bytes, const KernelCall& call);
  int TakeLastError();
  const char* last_error_text() const { return text_.c_str(); }

  // Called before each load and store of instrumented code, with its place in the program.
  void Note(const Access& access, const void* code);

 private:
  Device();

  int Fail(int error, std::string text);
  std::optional<std::string> RunBlock(int64_t block);

  ShadowMemory memory_;
  BlockThreads threads_;
  std::mt19937_64 random_;
  const KernelCall* call_ = nullptr;
  int error_ = kSuccess;
  std::string text_;
};

}  // namespace lathe::worker::emulation
