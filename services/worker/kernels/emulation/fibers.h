// Functions that run in turns on one thread of the process, each with a stack of its own.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <vector>

#include <ucontext.h>

namespace lathe::worker::emulation {

// makecontext enters a fiber for the first time. Switches are setjmp and longjmp, since swapcontext
// makes two system calls: 0.5 µs against 0.05 µs. A sum over a block of 512 threads switches 2,500
// times.
class Fibers {
 public:
  // Fiber i calls run(i) each time that it starts.
  Fibers(int count, std::function<void(int)> run);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  int count() const { return static_cast<int>(fibers_.size()); }

  // Starts or continues a fiber. Returns when it pauses or its run ends.
  void Resume(int index);

  // Pauses the running fiber.
  void Pause();

  // Lets every fiber start anew, also one in the middle of its run. Nothing is destroyed there.
  void Reset();

  // Returns the index of the fiber on whose stack the address is, -1 for other memory.
  int FiberOf(const void* address) const;

 private:
  struct Fiber {
    jmp_buf place;
    bool is_started = false;
  };

  static void Enter();
  void Start(int index);

  static thread_local Fibers* entered_;  // by the next Enter(), which takes no arguments

  const std::function<void(int)> run_;
  std::vector<Fiber> fibers_;
  char* stacks_;
  int current_ = -1;
  jmp_buf scheduler_;
};

}  // namespace lathe::worker::emulation
