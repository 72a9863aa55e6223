#include "services/worker/collectives/rank_group.h"

#include <catch2/catch.hpp>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

TEST_CASE("a rank alone is a group whose calls change nothing") {
  const RankGroup alone;
  const at::Tensor tensor = at::arange(3, at::kFloat);
  alone.Sum("sum", tensor);
  alone.Max("max", tensor);
  alone.Broadcast("broadcast", 0, tensor);
  CHECK(at::equal(tensor, at::arange(3, at::kFloat)));
  CHECK(at::equal(alone.Gather("gather", tensor), tensor.view({1, 3})));
  CHECK(alone.is_alone());
  CHECK(alone.rank() == 0);
}

TEST_CASE("the ranks of a group sum, take the largest, gather and broadcast") {
  const auto ok = AsRanks(TestBackend::kLocal, 2, [](Collectives& collectives) {
    const RankGroup group(collectives);
    const at::Tensor mine = at::full({2, 2}, 1.0F + static_cast<float>(group.rank()));
    const at::Tensor sum = mine.clone();
    group.Sum("sum", sum);
    const at::Tensor largest = mine.clone();
    group.Max("max", largest);
    const at::Tensor heard = mine.clone();
    group.Broadcast("broadcast", 1, heard);
    const at::Tensor all = group.Gather("gather", mine);
    const at::Tensor ones = at::ones({2, 2});
    return group.world() == 2 && at::equal(sum, ones * 3) && at::equal(largest, ones * 2) &&
           at::equal(heard, ones * 2) && at::equal(all, at::stack({ones, ones * 2}));
  });
  CHECK(ok[0]);
  CHECK(ok[1]);
}

TEST_CASE("a collective that fails is no std::exception") {
  FlightRecorder recorder;
  auto ranks = MakeLocalCollectives("tp", 2, {.timeout = kTestPatience}, recorder);
  ranks[1].reset();
  const RankGroup group(*ranks[0]);
  const auto call = [&] {
    try {
      group.Sum("layer 3", at::ones({1}));
    } catch (const std::exception&) {
      return absl::OkStatus();
    } catch (const RanksDisagree& failure) {
      return failure.status;
    }
    return absl::OkStatus();
  };
  const absl::Status status = call();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().find("layer 3") != std::string_view::npos);
}

}  // namespace
}  // namespace lathe::worker
