// Functions that kernels call because g++ compiles them with -fsanitize=thread,alignment,bounds.
// They replace the sanitizers' libraries: one before each load and store, and one for each address
// that is not aligned and each index that is outside of its array.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <absl/strings/str_format.h>

#include "services/worker/kernels/emulation/device.h"

namespace lathe::worker::emulation {
namespace {

// The beginning of every description that the compiler passes to a check's function.
struct Place {
  const char* file;
  uint32_t line;
  uint32_t column;
};

void Fail(const Place& place, const std::string& what) {
  const std::string text =
      absl::StrFormat("%s at %s:%d:%d", what, std::filesystem::path(place.file).filename().string(),
                      place.line, place.column);
  BlockThreads& threads = Device::Get().threads();
  if (threads.is_running()) threads.Fail(absl::StrFormat("thread %d, %s", threads.running(), text));
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}

}  // namespace
}  // namespace lathe::worker::emulation

using lathe::worker::emulation::AccessKind;
using lathe::worker::emulation::Device;
using lathe::worker::emulation::Place;

#define LATHE_NOTE(NAME, SIZE)                                                            \
  void __tsan_read##NAME(void* address) {                                                 \
    Device::Get().Note({address, SIZE, AccessKind::kRead}, __builtin_return_address(0));  \
  }                                                                                       \
  void __tsan_write##NAME(void* address) {                                                \
    Device::Get().Note({address, SIZE, AccessKind::kWrite}, __builtin_return_address(0)); \
  }

extern "C" {

void __tsan_init() {}

LATHE_NOTE(1, 1)
LATHE_NOTE(2, 2)
LATHE_NOTE(4, 4)
LATHE_NOTE(8, 8)
LATHE_NOTE(16, 16)

void __tsan_read_range(void* address, size_t size) {
  Device::Get().Note({address, size, AccessKind::kRead}, __builtin_return_address(0));
}

void __tsan_write_range(void* address, size_t size) {
  Device::Get().Note({address, size, AccessKind::kWrite}, __builtin_return_address(0));
}

void __ubsan_handle_type_mismatch_v1(const void* place, void* address) {
  Fail(*static_cast<const Place*>(place), absl::StrFormat("%p is not aligned", address));
}

void __ubsan_handle_out_of_bounds(const void* place, void* index) {
  Fail(*static_cast<const Place*>(place),
       absl::StrFormat("index %d is outside of its array", reinterpret_cast<intptr_t>(index)));
}

}  // extern "C"
