// Bounds the memory that requests need from the first byte of their body to their answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lathe::gateway {

// Memory that a gateway holds for one body: the body itself, its parsed form, and the message to
// the engine.
inline constexpr int64_t kBodyCopies = 3;

// Counts reserved bytes, in all and by key. Never waits: what does not fit is refused, so requests
// cannot wait for each other. Thread-safe. Shares may outlive it.
class ByteBudget {
 public:
  // Requests that need more are large: an eighth of the budget is left to the others.
  static constexpr int64_t kSmallBytes = 1 << 20;

  explicit ByteBudget(int64_t max_bytes);

  // Bytes that one request has reserved. It gives them back when it is destroyed. A default share
  // belongs to no budget and admits everything.
  class Share;

  int64_t num_reserved() const;
  int64_t max_bytes() const;

 private:
  struct State {
    explicit State(int64_t max) : max_bytes(max) {}
    // Returns an error if a share of `key` cannot grow from `from` to `to` bytes.
    absl::Status CheckLocked(const std::string& key, int64_t from, int64_t to) const
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

    const int64_t max_bytes;
    mutable absl::Mutex mu;
    int64_t num_reserved ABSL_GUARDED_BY(mu) = 0;
    absl::flat_hash_map<std::string, int64_t> by_key ABSL_GUARDED_BY(mu);
  };

  const std::shared_ptr<State> state_;
};

// Used by one thread at a time.
class ByteBudget::Share {
 public:
  Share() = default;
  // One key gets at most half of the budget.
  Share(const ByteBudget& budget, std::string api_key)
      : state_(budget.state_), key_(std::move(api_key)) {}
  Share(Share&& other) noexcept;
  Share& operator=(Share&& other) noexcept;
  ~Share() { Release(); }

  // Reserves until the share has `bytes`. Errors, after which it has what it had:
  //   ResourceExhausted  gateway_full: not now
  //   InvalidArgument    body_too_large: the budget never has room for so many
  absl::Status GrowTo(int64_t bytes);
  absl::Status Add(int64_t bytes) { return GrowTo(bytes_ + bytes); }
  // Returns the error that GrowTo would return now.
  absl::Status CheckRoom(int64_t bytes) const;
  void Release();
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<State> state_;
  std::string key_;
  int64_t bytes_ = 0;
};

}  // namespace lathe::gateway
