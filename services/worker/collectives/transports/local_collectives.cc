#include "services/worker/collectives/transports/transports.h"

#include <numeric>

#include "absl/strings/str_format.h"
#include "libs/common/time/clock.h"
#include "services/worker/collectives/collectives.h"

namespace lathe::worker {
namespace {

std::string Describe(const CollectiveOperation& operation) {
  return absl::StrFormat("%s (%s, number %d, %d elements)", operation.name, NameOf(operation.kind),
                         operation.number, operation.input.defined() ? operation.input.numel() : 0);
}

bool IsSame(const CollectiveOperation& a, const CollectiveOperation& b) {
  const auto dtype = [](const CollectiveOperation& operation) {
    return operation.input.defined() ? operation.input.scalar_type() : at::ScalarType::Undefined;
  };
  return Describe(a) == Describe(b) && dtype(a) == dtype(b) && a.root == b.root;
}

// Returns the part of `whole` that belongs to `rank`, out of `world` equal parts.
at::Tensor Piece(const at::Tensor& whole, int rank, int world) {
  const int64_t size = whole.numel() / world;
  return whole.narrow(0, rank * size, size);
}

// State that all ranks of one sub-mesh share. The last rank to arrive computes the result for all.
class LocalRendezvous {
 public:
  explicit LocalRendezvous(int world) : operations_(world), has_left_(world) {}

  absl::Status Run(const CollectiveOperation& operation, int rank) {
    absl::MutexLock lock(&mu_);
    operations_[rank] = &operation;
    const int64_t round = num_rounds_;
    if (++num_present_ == world()) {
      CompleteLocked();
      return failure_;
    }
    const auto is_over = [this, round]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return num_rounds_ > round || !failure_.ok();
    };
    CheckLeaversLocked();
    const absl::Duration rest = operation.deadline() - SteadyNow();
    if (mu_.AwaitWithTimeout(absl::Condition(&is_over), rest)) {
      return num_rounds_ > round ? absl::OkStatus() : failure_;
    }
    failure_ = absl::UnavailableError(absl::StrFormat("rank %d gave up waiting for others", rank));
    return absl::DeadlineExceededError(
        absl::StrFormat("deadline of %s is over, waiting for rank %d",
                        absl::FormatDuration(operation.timeout), FirstMissingLocked()));
  }

  void Leave(int rank) {
    absl::MutexLock lock(&mu_);
    has_left_[rank] = true;
    if (num_present_ > 0) CheckLeaversLocked();
  }

 private:
  int world() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return static_cast<int>(operations_.size());
  }

  void CheckLeaversLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (int rank = 0; rank < world(); ++rank) {
      if (!has_left_[rank] || operations_[rank] != nullptr || !failure_.ok()) continue;
      failure_ = absl::UnavailableError(absl::StrFormat("rank %d has left", rank));
    }
  }

  int FirstMissingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    int rank = 0;
    while (operations_[rank] != nullptr) ++rank;
    return rank;
  }

  void CompleteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (int rank = 1; rank < world() && failure_.ok(); ++rank) {
      if (IsSame(*operations_[0], *operations_[rank])) continue;
      failure_ = absl::UnavailableError(absl::StrFormat("rank 0 called %s, rank %d called %s",
                                                        Describe(*operations_[0]), rank,
                                                        Describe(*operations_[rank])));
    }
    if (!failure_.ok()) return;
    ComputeLocked(operations_[0]->kind);
    std::ranges::fill(operations_, nullptr);
    num_present_ = 0;
    ++num_rounds_;
  }

  void ComputeLocked(CollectiveKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    switch (kind) {
      case CollectiveKind::kAllReduceSum:
      case CollectiveKind::kAllReduceMax: {
        at::Tensor result = at::empty_like(operations_[0]->input);
        ReduceInRankOrder(kind, InputsLocked(), result);
        for (const CollectiveOperation* operation : operations_) operation->output.copy_(result);
        return;
      }
      case CollectiveKind::kReduceScatterSum: {
        at::Tensor result = at::empty_like(operations_[0]->input);
        ReduceInRankOrder(kind, InputsLocked(), result);
        for (int rank = 0; rank < world(); ++rank) {
          operations_[rank]->output.copy_(Piece(result, rank, world()));
        }
        return;
      }
      case CollectiveKind::kAllGather: {
        const at::Tensor whole = at::cat(InputsLocked());
        for (const CollectiveOperation* operation : operations_) operation->output.copy_(whole);
        return;
      }
      case CollectiveKind::kBroadcast:
        for (const CollectiveOperation* operation : operations_) {
          operation->output.copy_(operations_[operation->root]->input);
        }
        return;
      case CollectiveKind::kBarrier:
      case CollectiveKind::kReplay:
        return;
    }
  }

  std::vector<at::Tensor> InputsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<at::Tensor> inputs;
    for (const CollectiveOperation* operation : operations_) inputs.push_back(operation->input);
    return inputs;
  }

  absl::Mutex mu_;
  // Calls of the present round by rank; null: the rank has not arrived.
  std::vector<const CollectiveOperation*> operations_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> has_left_ ABSL_GUARDED_BY(mu_);
  int num_present_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_rounds_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

class LocalCollectives : public Collectives {
 public:
  LocalCollectives(SubMesh place, const CollectivesOptions& options, FlightRecorder& recorder,
                   std::shared_ptr<LocalRendezvous> rendezvous)
      : Collectives(std::move(place), options, recorder), rendezvous_(std::move(rendezvous)) {}
  ~LocalCollectives() override { rendezvous_->Leave(rank()); }

 private:
  absl::Status Run(const CollectiveOperation& operation) override {
    return rendezvous_->Run(operation, rank());
  }
  // Does the whole all-gather at once, as all ranks start it in the same order.
  absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) override {
    if (absl::Status status = Run(operation); !status.ok()) return status;
    return nullptr;
  }
  absl::Status Finish(const CollectiveOperation&, void*) override { return absl::OkStatus(); }

  const std::shared_ptr<LocalRendezvous> rendezvous_;
};

}  // namespace

std::vector<std::unique_ptr<Collectives>> MakeLocalCollectives(const std::string& axis, int world,
                                                               const CollectivesOptions& options,
                                                               FlightRecorder& recorder) {
  const auto rendezvous = std::make_shared<LocalRendezvous>(world);
  SubMesh place{.axis = axis, .ranks = std::vector<int>(world)};
  std::iota(place.ranks.begin(), place.ranks.end(), 0);
  std::vector<std::unique_ptr<Collectives>> ranks;
  for (place.rank = 0; place.rank < world; ++place.rank) {
    ranks.push_back(std::make_unique<LocalCollectives>(place, options, recorder, rendezvous));
  }
  return ranks;
}

}  // namespace lathe::worker
