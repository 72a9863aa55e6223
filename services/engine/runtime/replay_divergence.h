// How far results of operations that ran again are from those their callers got.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// The largest difference of two encoded lathe.v1.OperationResults: of logprobs, absolute; of
// metrics, relative to those above 1. What only one of them has counts as infinite.
double DifferenceOf(const std::string& first, const std::string& again);

// Thread-safe.
class ReplayDivergence {
 public:
  // `store` must outlive this.
  explicit ReplayDivergence(Store& store) : store_(store) {}

  void Add(std::string request_id, SharedBytes again);
  // Reads the first results of some of what was added; those that retention removed, and all of
  // these when the store does not answer, are passed over. May block for one read.
  void Compare();

  struct Sums {
    int64_t num_compared = 0;
    double largest = 0;  // since the start
  };
  Sums sums() const;

 private:
  // More are not compared: a recovery must not hold the memory of all its results.
  static constexpr size_t kMaxWaiting = 1024;
  static constexpr size_t kMaxAtOnce = 64;

  Store& store_;
  mutable absl::Mutex mu_;
  std::vector<std::pair<std::string, SharedBytes>> waiting_ ABSL_GUARDED_BY(mu_);
  Sums sums_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
