#include "services/engine/runtime/replay_divergence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? kInfinite : distance;
}

// Returns the largest difference of two arrays of packed little-endian floats.
double LogprobDifference(const std::string& first, const std::string& again) {
  if (first.size() != again.size()) return kInfinite;
  double largest = 0;
  for (size_t at = 0; at + sizeof(float) <= first.size(); at += sizeof(float)) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, first.data() + at, sizeof(a));
    std::memcpy(&b, again.data() + at, sizeof(b));
    largest = std::max(largest, Distance(a, b));
  }
  return largest;
}

template <typename Metrics>
double MetricDifference(const Metrics& first, const Metrics& again) {
  if (first.size() != again.size()) return kInfinite;
  double largest = 0;
  for (int i = 0; i < first.size(); ++i) {
    if (first[i].name() != again[i].name()) return kInfinite;
    const double scale = std::max(1.0, std::abs(first[i].value()));
    largest = std::max(largest, Distance(first[i].value(), again[i].value()) / scale);
  }
  return largest;
}

}  // namespace

double DifferenceOf(const std::string& first, const std::string& again) {
  if (first == again) return 0;
  v1::OperationResult a;
  v1::OperationResult b;
  if (!a.ParseFromString(first) || !b.ParseFromString(again)) return kInfinite;
  if (a.outcome_case() != b.outcome_case()) return kInfinite;
  if (a.has_optim_step()) {
    return MetricDifference(a.optim_step().metrics(), b.optim_step().metrics());
  }
  if (!a.has_forward_backward()) return 0;
  const v1::ForwardBackwardResult& one = a.forward_backward();
  const v1::ForwardBackwardResult& two = b.forward_backward();
  if (one.outputs_size() != two.outputs_size()) return kInfinite;
  double largest = MetricDifference(one.metrics(), two.metrics());
  for (int i = 0; i < one.outputs_size(); ++i) {
    largest =
        std::max(largest, LogprobDifference(one.outputs(i).logprobs(), two.outputs(i).logprobs()));
  }
  return largest;
}

void ReplayDivergence::Add(std::string request_id, SharedBytes again) {
  if (again == nullptr) return;
  absl::MutexLock lock(&mu_);
  if (waiting_.size() < kMaxWaiting) waiting_.emplace_back(std::move(request_id), std::move(again));
}

void ReplayDivergence::Compare() {
  std::vector<std::pair<std::string, SharedBytes>> some;
  {
    absl::MutexLock lock(&mu_);
    const size_t num = std::min(waiting_.size(), kMaxAtOnce);
    some.assign(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(num));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(num));
  }
  for (const auto& [request_id, again] : some) {
    const absl::StatusOr<std::optional<StoredResult>> first = store_.ReadAnyResult(request_id);
    if (!first.ok()) return;  // do not wait for a store that fails
    if (!first->has_value()) continue;
    const double difference = DifferenceOf((*first)->bytes, *again);
    absl::MutexLock lock(&mu_);
    ++sums_.num_compared;
    sums_.largest = std::max(sums_.largest, difference);
  }
}

ReplayDivergence::Sums ReplayDivergence::sums() const {
  absl::MutexLock lock(&mu_);
  return sums_;
}

}  // namespace lathe::engine
