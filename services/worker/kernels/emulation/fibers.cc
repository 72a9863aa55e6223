#include "services/worker/kernels/emulation/fibers.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

#include <sys/mman.h>

namespace lathe::worker::emulation {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kStackBytes = 32 * kPageBytes;  // of which the lowest page is a guard

}  // namespace

thread_local Fibers* Fibers::entered_ = nullptr;

Fibers::Fibers(int count, std::function<void(int)> run) : run_(std::move(run)), fibers_(count) {
  void* stacks = mmap(nullptr, fibers_.size() * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) throw std::runtime_error("no memory for the stacks of a block");
  stacks_ = static_cast<char*>(stacks);
  for (size_t i = 0; i < fibers_.size(); ++i) {
    if (mprotect(stacks_ + i * kStackBytes, kPageBytes, PROT_NONE) != 0) {
      throw std::runtime_error("a guard page cannot be protected");
    }
  }
}

Fibers::~Fibers() { munmap(stacks_, fibers_.size() * kStackBytes); }

void Fibers::Resume(int index) {
  current_ = index;
  if (_setjmp(scheduler_) != 0) return;
  if (!fibers_[index].is_started) Start(index);
  _longjmp(fibers_[index].place, 1);
}

void Fibers::Pause() {
  if (_setjmp(fibers_[current_].place) == 0) _longjmp(scheduler_, 1);
}

void Fibers::Reset() {
  for (Fiber& fiber : fibers_) fiber.is_started = false;
}

int Fibers::FiberOf(const void* address) const {
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(stacks_);
  return offset < fibers_.size() * kStackBytes ? static_cast<int>(offset / kStackBytes) : -1;
}

void Fibers::Start(int index) {
  fibers_[index].is_started = true;
  entered_ = this;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks_ + index * kStackBytes;
  // Tops of stacks that are a power of two apart would share the same few lines of the caches.
  context.uc_stack.ss_size = kStackBytes - static_cast<size_t>(index % 64) * 256;
  context.uc_link = nullptr;
  makecontext(&context, Enter, 0);
  setcontext(&context);
}

void Fibers::Enter() {
  Fibers& fibers = *entered_;
  const int index = fibers.current_;
  // The next Resume after the end of a run starts the next one.
  while (true) {
    fibers.run_(index);
    fibers.Pause();
  }
}

}  // namespace lathe::worker::emulation
