// Differences of tensors, for tests.
#pragma once

#include <catch2/catch.hpp>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

// Returns the largest difference relative to the largest number of `b`, which must not be all zero.
inline double RelativeDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  REQUIRE(b.abs().max().item<double>() > 0);
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

inline bool IsZero(const at::Tensor& x) { return x.abs().max().item<double>() == 0; }

}  // namespace lathe::worker
