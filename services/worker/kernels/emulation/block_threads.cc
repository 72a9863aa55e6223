#include "services/worker/kernels/emulation/block_threads.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include <absl/strings/str_format.h>

namespace lathe::worker::emulation {

BlockThreads::BlockThreads(ShadowMemory& memory, std::function<void()> run)
    : memory_(memory), fibers_(kMostThreads, [this, run = std::move(run)](int thread) {
        run();
        threads_[thread].state = State::kEnded;
        ++num_ended_;
        Warp& warp = WarpOf(thread);
        ++warp.num_ended;
        if (warp.num_waiting > 0) LeaveWarp(warp);
      }) {}

std::optional<std::string> BlockThreads::Run(std::mt19937_64& random) {
  Prepare();
  do {
    while (!ready_.empty() && !defect_) {
      std::swap(ready_[random() % ready_.size()], ready_.back());
      const int thread = ready_.back();
      ready_.pop_back();
      RunThread(thread);
    }
  } while (!defect_ && ReleaseBlock());
  if (defect_) fibers_.Reset();
  return defect_;
}

void BlockThreads::Prepare() {
  const Extent& dim = indices.block_dim;
  const int count = static_cast<int>(dim.count());
  threads_.assign(count, {});
  warps_.assign((count + kWarpLanes - 1) / kWarpLanes, {});
  ready_.clear();
  num_ended_ = 0;
  defect_.reset();
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<unsigned>(i);
    threads_[i].index = {place % dim.x, place / dim.x % dim.y, place / dim.x / dim.y};
    Warp& warp = WarpOf(i);
    if (warp.size++ == 0) warp.first = i;
    ready_.push_back(i);
    memory_.BeginSegment({.thread = i, .warp_barriers = 0});
  }
}

void BlockThreads::RunThread(int thread) {
  running_ = thread;
  indices.thread = threads_[thread].index;
  fibers_.Resume(thread);
  running_ = -1;
}

void BlockThreads::Fail(std::string what) {
  defect_ = std::move(what);
  fibers_.Pause();
  std::abort();  // nobody resumes it
}

void BlockThreads::WaitForBlock(const std::source_location& where) {
  Wait(State::kAtBlock, where);
  fibers_.Pause();
}

void BlockThreads::WaitForWarp(unsigned lanes, const std::source_location& where) {
  if (lanes != kAllLanes) Fail("a part of a warp is not emulated");
  Wait(State::kAtWarp, where);
}

uint64_t BlockThreads::Exchange(unsigned lanes, uint64_t number, int from_lane,
                                const std::source_location& where) {
  if (lanes != kAllLanes) Fail("a part of a warp is not emulated");
  Thread& thread = threads_[running_];
  thread.number = number;
  thread.from_lane = from_lane;
  Wait(State::kAtExchange, where);
  return thread.number;
}

// The last lane to arrive goes on at once.
void BlockThreads::Wait(State state, const std::source_location& where) {
  Thread& thread = threads_[running_];
  thread.state = state;
  thread.where = where;
  if (state == State::kAtBlock) return;
  Warp& warp = WarpOf(running_);
  ++warp.num_waiting;
  LeaveWarp(warp);
  if (thread.state != State::kReady) fibers_.Pause();
}

// Lets the lanes of a warp go on once none is missing.
void BlockThreads::LeaveWarp(Warp& warp) {
  if (warp.num_waiting + warp.num_ended < warp.size) return;
  int first = -1;
  for (int i = warp.first; i < warp.first + warp.size; ++i) {
    if (threads_[i].state == State::kEnded) continue;
    if (first < 0) first = i;
    if (!IsTogether(threads_[first], threads_[i])) {
      Fail(absl::StrFormat("lanes of a warp part: %s, %s", Describe(first), Describe(i)));
    }
  }
  const bool is_barrier = threads_[first].state == State::kAtWarp;
  if (!is_barrier) TakeNumbers(warp);
  for (int i = warp.first; i < warp.first + warp.size; ++i) {
    Thread& thread = threads_[i];
    if (thread.state == State::kEnded) continue;
    thread.state = State::kReady;
    if (i != running_) ready_.push_back(i);
    if (is_barrier) memory_.BeginSegment({i, ++thread.warp_barriers});
  }
  warp.num_waiting = 0;
}

void BlockThreads::TakeNumbers(const Warp& warp) {
  std::array<uint64_t, kWarpLanes> numbers;
  for (int lane = 0; lane < warp.size; ++lane) numbers[lane] = threads_[warp.first + lane].number;
  for (int lane = 0; lane < warp.size; ++lane) {
    Thread& thread = threads_[warp.first + lane];
    if (thread.state == State::kEnded) continue;
    const int from = thread.from_lane;
    if (from < 0 || from >= warp.size || threads_[warp.first + from].state == State::kEnded) {
      Fail(absl::StrFormat("%s for the number of lane %d, which takes no part",
                           Describe(warp.first + lane), from));
    }
    thread.number = numbers[from];
  }
}

// Lets the block go on if all its threads wait at one barrier. Returns false if it has ended.
bool BlockThreads::ReleaseBlock() {
  const int count = static_cast<int>(threads_.size());
  if (num_ended_ == count) return false;
  // A thread that waits for its warp waits for a lane that waits elsewhere.
  const auto parts = [&](const Thread& thread) { return !IsTogether(threads_[0], thread); };
  const auto other = std::ranges::find_if(threads_, parts);
  if (other != threads_.end()) {
    defect_ = absl::StrFormat("threads part at a barrier: %s, %s", Describe(0),
                              Describe(static_cast<int>(other - threads_.begin())));
    return false;
  }
  memory_.PassBarrier();
  for (int i = 0; i < count; ++i) {
    threads_[i].state = State::kReady;
    ready_.push_back(i);
    memory_.BeginSegment({i, threads_[i].warp_barriers});
  }
  return true;
}

bool BlockThreads::IsTogether(const Thread& a, const Thread& b) {
  if (a.state != b.state) return false;
  if (a.state == State::kEnded) return true;
  if (a.where.line() != b.where.line() || a.where.column() != b.where.column()) return false;
  const char* file = a.where.file_name();
  return file == b.where.file_name() || std::string_view(file) == b.where.file_name();
}

std::string BlockThreads::Describe(int thread) const {
  const auto& [index, state, where, number, from_lane, warp_barriers] = threads_[thread];
  if (state == State::kEnded) return absl::StrFormat("thread %d has ended", thread);
  const char* what = state == State::kAtBlock  ? "its block"
                     : state == State::kAtWarp ? "its warp"
                                               : "a number of its warp";
  return absl::StrFormat("thread %d waits for %s at %s:%d", thread, what,
                         std::filesystem::path(where.file_name()).filename().string(),
                         where.line());
}

}  // namespace lathe::worker::emulation
