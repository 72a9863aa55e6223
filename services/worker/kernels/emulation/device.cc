#include "services/worker/kernels/emulation/device.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <dlfcn.h>
#include <link.h>

namespace lathe::worker {

// A launch may ask for so much of it without cudaFuncSetAttribute.
constexpr size_t kMostDynamicShared = 48 * 1024;
// The name is that of DynamicShared() in launch.cuh.
alignas(16) thread_local char dynamic_shared_memory[kMostDynamicShared];

namespace emulation {
namespace {

constexpr unsigned kMostBlocksYZ = 65535;
constexpr int64_t kMostBlocksX = (int64_t{1} << 31) - 1;

struct Bytes {
  const void* data = nullptr;
  size_t size = 0;
};

// Returns this thread's thread_local variables of the program: __shared__ ones are among them.
Bytes ThreadLocals() {
  Bytes found;
  const auto visit = [](dl_phdr_info* module, size_t, void* result) {
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const auto& header = module->dlpi_phdr[i];
      if (header.p_type != PT_TLS) continue;
      *static_cast<Bytes*>(result) = {module->dlpi_tls_data, header.p_memsz};
    }
    return 1;  // the program is the first module
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

// Returns a place for addr2line.
std::string PlaceOf(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0) return "";
  const auto offset = static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase);
  return absl::StrFormat(" (addr2line -fie %s %#x)", info.dli_fname, offset - 1);
}

}  // namespace

Indices indices;

Device& Device::Get() {
  static Device device;
  return device;
}

Device::Device() : threads_(memory_, [this] { call_->run(*call_); }) {}

int Device::Run(const Extent& grid, const Extent& block, size_t shared_bytes,
                const KernelCall& call) {
  if (grid.count() == 0 || block.count() == 0 || grid.x > kMostBlocksX || grid.y > kMostBlocksYZ ||
      grid.z > kMostBlocksYZ || block.count() > BlockThreads::kMostThreads ||
      shared_bytes > kMostDynamicShared) {
    return Fail(kInvalidConfiguration, "invalid configuration argument");
  }
  const Bytes shared = ThreadLocals();
  memory_.SetShared(shared.data, shared.size);
  memory_.SetDynamicShared(dynamic_shared_memory, shared_bytes, sizeof(dynamic_shared_memory));
  memory_.BeginLaunch();
  indices = {.block_dim = block, .grid_dim = grid};
  call_ = &call;
  std::vector<int64_t> blocks(grid.count());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ranges::shuffle(blocks, random_);
  for (const int64_t number : blocks) {
    if (const auto defect = RunBlock(number)) {
      return Fail(kLaunchFailure, absl::StrFormat("block %d, %s", number, *defect));
    }
  }
  return kSuccess;
}

std::optional<std::string> Device::RunBlock(int64_t block) {
  const Extent& grid = indices.grid_dim;
  indices.block = {static_cast<unsigned>(block % grid.x),
                   static_cast<unsigned>(block / grid.x % grid.y),
                   static_cast<unsigned>(block / grid.x / grid.y)};
  memory_.BeginBlock(block);
  return threads_.Run(random_);
}

int Device::Fail(int error, std::string text) {
  text_ = std::move(text);
  return error_ = error;
}

int Device::TakeLastError() { return std::exchange(error_, kSuccess); }

void Device::Note(const Access& access, const void* code) {
  if (!threads_.is_running()) return;
  const auto offset = static_cast<const char*>(access.address) - reinterpret_cast<char*>(&indices);
  if (offset >= 0 && offset < static_cast<ptrdiff_t>(sizeof(indices))) return;
  const int owner = threads_.OwnerOf(access.address);
  if (owner == threads_.running()) return;
  if (owner >= 0) {
    threads_.Fail(absl::StrCat("thread ", threads_.running(), " uses the stack of thread ", owner,
                               PlaceOf(code)));
  }
  if (const auto defect = memory_.Note(threads_.running(), access)) {
    threads_.Fail(*defect + PlaceOf(code));
  }
}

int RunGrid(const Extent& grid, const Extent& block, size_t shared_bytes, const KernelCall& call) {
  return Device::Get().Run(grid, block, shared_bytes, call);
}

void SetSeed(uint64_t seed) { Device::Get().SetSeed(seed); }

int TakeLastError() { return Device::Get().TakeLastError(); }

const char* LastErrorText() { return Device::Get().last_error_text(); }

int Lane() { return Device::Get().threads().running() % kWarpLanes; }

void WaitForBlock(const std::source_location& where) {
  Device::Get().threads().WaitForBlock(where);
}

void WaitForWarp(unsigned lanes, const std::source_location& where) {
  Device::Get().threads().WaitForWarp(lanes, where);
}

uint64_t Exchange(unsigned lanes, uint64_t number, int from_lane,
                  const std::source_location& where) {
  return Device::Get().threads().Exchange(lanes, number, from_lane, where);
}

int AtomicAdd(int* address, int value) {
  Device::Get().Note({address, sizeof(int), AccessKind::kAtomic}, __builtin_return_address(0));
  return std::exchange(*address, *address + value);
}

}  // namespace emulation
}  // namespace lathe::worker
