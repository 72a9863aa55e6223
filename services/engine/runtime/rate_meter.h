// Measures throughput over busy time.
#pragma once

#include <cstdint>

namespace lathe::engine {

// Work overlaps: the clock runs while at least one piece is in progress. Older work counts less.
// Times are in nanoseconds. Not thread-safe.
class RateMeter {
 public:
  void Begin(int64_t now) {
    if (num_running_++ == 0) busy_since_ = now;
  }
  // Ends one piece of work. `units` 0: it had no result.
  void End(int64_t now, int64_t units) {
    if (num_running_ == 0) return;
    if (now > busy_since_) busy_ += static_cast<double>(now - busy_since_);
    busy_since_ = now;
    --num_running_;
    units_ += static_cast<double>(units);
    num_ended_ += units > 0 ? 1 : 0;
    if (busy_ < kMemory) return;
    busy_ /= 2;
    units_ /= 2;
  }

  // Returns units per busy second; 0: not enough data yet.
  double Rate() const {
    constexpr double kEnough = 1e8;
    return num_ended_ >= 3 && busy_ >= kEnough ? units_ / busy_ * 1e9 : 0;
  }

 private:
  static constexpr double kMemory = 60e9;

  int64_t num_running_ = 0;
  int64_t num_ended_ = 0;
  int64_t busy_since_ = 0;
  double busy_ = 0;
  double units_ = 0;
};

}  // namespace lathe::engine
