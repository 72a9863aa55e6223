// Runs the threads of one block in a random order and checks how they meet at barriers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "services/worker/kernels/emulation/block.h"
#include "services/worker/kernels/emulation/fibers.h"
#include "services/worker/kernels/emulation/shadow_memory.h"

namespace lathe::worker::emulation {

class BlockThreads {
 public:
  static constexpr int kMostThreads = 1024;

  // `run` is a thread's whole work.
  BlockThreads(ShadowMemory& memory, std::function<void()> run);

  // Runs a block of `indices` to its end, or to the first defect, which it returns.
  std::optional<std::string> Run(std::mt19937_64& random);

  // Says whether a thread runs just now, and which one.
  bool is_running() const { return running_ >= 0; }
  int running() const { return running_; }

  // For the running thread; see block.h.
  void WaitForBlock(const std::source_location& where);
  void WaitForWarp(unsigned lanes, const std::source_location& where);
  uint64_t Exchange(unsigned lanes, uint64_t number, int from_lane,
                    const std::source_location& where);
  // Returns the thread in whose local memory the address is, -1 for other memory.
  int OwnerOf(const void* address) const { return fibers_.FiberOf(address); }
  // Ends the block.
  [[noreturn]] void Fail(std::string what);

 private:
  enum class State { kReady, kAtBlock, kAtWarp, kAtExchange, kEnded };

  struct Thread {
    Index index;
    State state = State::kReady;
    std::source_location where;  // it waits
    uint64_t number = 0;
    int from_lane = 0;
    int warp_barriers = 0;
  };

  struct Warp {
    int first = 0;
    int size = 0;
    int num_waiting = 0;
    int num_ended = 0;
  };

  void Prepare();
  void RunThread(int thread);
  void Wait(State state, const std::source_location& where);
  void LeaveWarp(Warp& warp);
  void TakeNumbers(const Warp& warp);
  bool ReleaseBlock();
  static bool IsTogether(const Thread& a, const Thread& b);
  std::string Describe(int thread) const;
  Warp& WarpOf(int thread) { return warps_[thread / kWarpLanes]; }

  ShadowMemory& memory_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> ready_;
  int running_ = -1;
  int num_ended_ = 0;
  std::optional<std::string> defect_;
  Fibers fibers_;
};

}  // namespace lathe::worker::emulation
