// Measures how far the results of replayed operations differ from the original results.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Returns the largest difference of two encoded lathe.v1.OperationResults. For logprobs it is
// absolute, for metrics relative to values above 1. A value that only one result has counts as
// infinite.
double DifferenceOf(const std::string& first, const std::string& again);

// Compares results of replayed operations with those in the store. Thread-safe.
class ReplayDivergence {
 public:
  // `store` must outlive this object.
  explicit ReplayDivergence(Store& store) : store_(store) {}

  void Add(std::string request_id, SharedBytes again);
  // Compares some of the added results with the first results in the store. Skips results that
  // retention removed. If the store does not answer, skips the whole batch. May block for one read.
  void Compare();

  struct Sums {
    int64_t num_compared = 0;
    double largest = 0;  // largest difference since the start
  };
  Sums sums() const;

 private:
  // Bound of the queue, so that a recovery does not hold the memory of all its results. Others are
  // not compared.
  static constexpr size_t kMaxWaiting = 1024;
  static constexpr size_t kMaxAtOnce = 64;

  Store& store_;
  mutable absl::Mutex mu_;
  std::vector<std::pair<std::string, SharedBytes>> waiting_ ABSL_GUARDED_BY(mu_);
  Sums sums_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
