// Tests NCCL in a world of one, which is all that one GPU allows. Without a GPU each case warns and
// is skipped.
#include "services/worker/collectives/transports/transports.h"

#include <catch2/catch.hpp>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

at::Tensor OnGpu(std::initializer_list<float> values) {
  return at::tensor(at::ArrayRef<float>(values)).to(at::kCUDA);
}

}  // namespace

TEST_CASE("NCCL collectives: one rank is left with what it has", "[collectives][gpu]") {
  if (!at::hasCUDA()) {
    WARN("no GPU here: not run");
    return;
  }
  const auto rendezvous = RendezvousOnLoopback(1);
  FlightRecorder recorder;
  auto rank = ConnectNccl(*rendezvous[0], at::Device(at::kCUDA, 0), TestPlace(0, 1),
                          {.timeout = kTestPatience}, recorder);
  REQUIRE(rank.ok());
  const at::Tensor values = OnGpu({1.0F, -2.0F});
  at::Tensor tensor = values.clone();
  at::Tensor other = at::zeros_like(values);
  CHECK((*rank)->AllReduceSum("sum", tensor).ok());
  CHECK((*rank)->AllReduceMax("max", tensor).ok());
  CHECK((*rank)->Broadcast("broadcast", 0, tensor).ok());
  CHECK((*rank)->AllGather("gather", tensor, other).ok());
  CHECK(at::equal(tensor, values));
  CHECK(at::equal(other, values));
  CHECK((*rank)->ReduceScatterSum("scatter", values, other.zero_()).ok());
  CHECK(at::equal(other, values));
  auto pending = (*rank)->StartAllGather("ahead", values, other.zero_());
  REQUIRE(pending.ok());
  const absl::Status waited = (*rank)->Wait(*std::move(pending));
  CHECK(waited.ok());
  CHECK(at::equal(other, values));
  CHECK((*rank)->Barrier("barrier").ok());
  CHECK((*rank)->Replay("replay", [&] { other.add_(values); }).ok());
  CHECK((*rank)->Barrier("after the replay").ok());
  CHECK(at::equal(other, values + values));
  CHECK((*rank)->totals().num_calls == 9);
}

}  // namespace lathe::worker
