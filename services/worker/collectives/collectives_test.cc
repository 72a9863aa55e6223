// One suite for every backend that runs without a GPU.
#include "services/worker/collectives/collectives.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

// Returns 0, 1, …, 12, 0, 1, … times `factor`. Sums over four ranks are exact in bfloat16 too.
at::Tensor Pattern(int64_t size, at::ScalarType dtype, int64_t factor) {
  return (at::arange(size, at::kLong).remainder(13) * factor).to(dtype);
}

// Returns 1 + 2 + … + world.
int64_t Triangle(int64_t world) { return world * (world + 1) / 2; }

at::Tensor AllReduced(Collectives& ranks, at::Tensor tensor) {
  TORCH_CHECK(ranks.AllReduceSum("sum", tensor).ok());
  return tensor;
}

// Compares bits, not values: -0 differs from 0, and a NaN equals itself.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Returns values of one of three ranks. Their sum depends on the order of addition.
at::Tensor Delicate(int64_t size, int rank) {
  const at::Tensor noise = at::arange(size, at::kFloat).mul(0.7315F + 0.1F * rank).sin();
  return noise * std::pow(10.0F, 3.0F - 2.0F * rank);
}

struct Sums {
  at::Tensor first, second, whole;
  bool is_ok = false;
};

}  // namespace

TEST_CASE("Collectives: an all-reduce gives every rank the sum", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble, at::kLong);
  // Fewer elements than ranks, a number not divisible by the ranks, and several segments.
  const std::vector<int64_t> sizes{0, 1, 7, 1000, 700'001};
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    std::vector<at::Tensor> sums;
    for (const int64_t size : sizes) {
      sums.push_back(AllReduced(ranks, Pattern(size, dtype, ranks.rank() + 1)));
    }
    return sums;
  });
  INFO(backend << ", world " << world << ", " << c10::toString(dtype));
  for (const std::vector<at::Tensor>& sums : results) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      CHECK(at::equal(sums[i], Pattern(sizes[i], dtype, Triangle(world))));
    }
  }
}

TEST_CASE("Collectives: a sum is in the order of the ranks, to the bit, on every rank",
          "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(2, 3, 4);
  const int64_t size = 300'007;
  at::Tensor expected = Delicate(size, 0);
  for (int rank = 1; rank < world; ++rank) expected = expected + Delicate(size, rank);
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    return AllReduced(ranks, Delicate(size, ranks.rank()));
  });
  for (const at::Tensor& result : results) CHECK(SameBits(result, expected));
}

TEST_CASE("Collectives: bfloat16 is rounded once, not after each rank", "[collectives]") {
  const TestBackend backend = AnyBackend();
  // 256 + 0.5 is 256 in bfloat16; 256 + 3 · 0.5 is 257.5, which rounds to 258.
  const auto results = AsRanks(backend, 4, [&](Collectives& ranks) {
    return AllReduced(ranks, at::full({9}, ranks.rank() == 0 ? 256.0 : 0.5, at::kBFloat16));
  });
  for (const at::Tensor& result : results) {
    CHECK(at::equal(result, at::full({9}, 258.0, at::kBFloat16)));
  }
}

TEST_CASE("Collectives: an all-reduce works on a tensor of any shape, in place", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const auto results = AsRanks(backend, 2, [&](Collectives& ranks) {
    at::Tensor rows = at::full({4, 3}, 1.0 + ranks.rank(), at::kFloat);
    TORCH_CHECK(ranks.AllReduceSum("two rows", rows.narrow(0, 1, 2)).ok());
    return rows;
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(at::equal(results[rank].narrow(0, 1, 2), at::full({2, 3}, 3.0, at::kFloat)));
    CHECK(at::equal(results[rank][0], at::full({3}, 1.0 + rank, at::kFloat)));
    CHECK(at::equal(results[rank][3], at::full({3}, 1.0 + rank, at::kFloat)));
  }
}

TEST_CASE("Collectives: a maximum is over all ranks, and a NaN reaches all of them",
          "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    at::Tensor tensor = at::tensor({-5.0F - ranks.rank(), 1.0F * ranks.rank(), 0.0F});
    if (ranks.rank() == world - 1) tensor[2] = std::numeric_limits<float>::quiet_NaN();
    TORCH_CHECK(ranks.AllReduceMax("maximum", tensor).ok());
    return tensor;
  });
  for (const at::Tensor& result : results) {
    CHECK(result[0].item<float>() == -5.0F);
    CHECK(result[1].item<float>() == static_cast<float>(world - 1));
    CHECK(std::isnan(result[2].item<float>()));
    CHECK(SameBits(result, results[0]));
  }
}

TEST_CASE("Collectives: an all-gather lays the pieces end to end by rank", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  const int64_t size = 70'001;
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    at::Tensor whole = at::zeros({world, size}, dtype);
    TORCH_CHECK(ranks.AllGather("gather", Pattern(size, dtype, ranks.rank() + 1), whole).ok());
    return whole;
  });
  for (const at::Tensor& result : results) {
    for (int rank = 0; rank < world; ++rank) {
      CHECK(at::equal(result[rank], Pattern(size, dtype, rank + 1)));
    }
  }
}

TEST_CASE("Collectives: a piece may lie in its own place of the whole", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const auto results = AsRanks(backend, 3, [&](Collectives& ranks) {
    at::Tensor whole = at::zeros({3, 5}, at::kFloat);
    whole[ranks.rank()].fill_(ranks.rank() + 1);
    TORCH_CHECK(ranks.AllGather("gather", whole[ranks.rank()], whole).ok());
    return whole;
  });
  for (const at::Tensor& result : results) {
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(at::equal(result[rank], at::full({5}, rank + 1.0, at::kFloat)));
    }
  }
}

TEST_CASE("Collectives: gathers that were started leave room for other calls", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 4);
  const int64_t size = 200'000;
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    Sums sums{.second = at::full({3}, 1.0, at::kFloat)};
    sums.first = at::empty({world * size}, at::kFloat);
    sums.whole = at::empty({world * size}, at::kFloat);
    const at::Tensor one = Pattern(size, at::kFloat, ranks.rank() + 1);
    const at::Tensor two = Pattern(size, at::kFloat, ranks.rank() + 10);
    auto first = ranks.StartAllGather("layer 0", one, sums.first);
    auto whole = ranks.StartAllGather("layer 1", two, sums.whole);
    sums.is_ok = ranks.AllReduceSum("between", sums.second).ok() && first.ok() && whole.ok() &&
                 ranks.Wait(*first).ok() && ranks.Wait(*whole).ok();
    return sums;
  });
  for (const Sums& sums : results) {
    REQUIRE(sums.is_ok);
    CHECK(at::equal(sums.second, at::full({3}, 1.0 * world, at::kFloat)));
    for (int rank = 0; rank < world; ++rank) {
      CHECK(
          at::equal(sums.first.narrow(0, rank * size, size), Pattern(size, at::kFloat, rank + 1)));
      CHECK(
          at::equal(sums.whole.narrow(0, rank * size, size), Pattern(size, at::kFloat, rank + 10)));
    }
  }
}

TEST_CASE("Collectives: a reduce-scatter gives each rank its part of the sum", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble, at::kLong);
  const std::vector<int64_t> sizes{0, 3, 400'000};
  const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
    std::vector<at::Tensor> pieces;
    for (const int64_t size : sizes) {
      const at::Tensor whole = Pattern(world * size, dtype, ranks.rank() + 1);
      pieces.push_back(at::zeros({size}, dtype));
      TORCH_CHECK(ranks.ReduceScatterSum("scatter", whole, pieces.back()).ok());
      TORCH_CHECK(at::equal(whole, Pattern(world * size, dtype, ranks.rank() + 1)));
    }
    return pieces;
  });
  for (size_t i = 0; i < sizes.size(); ++i) {
    const at::Tensor sum = Pattern(world * sizes[i], dtype, Triangle(world));
    for (int rank = 0; rank < world; ++rank) {
      CHECK(at::equal(results[rank][i], sum.narrow(0, rank * sizes[i], sizes[i])));
    }
  }
}

TEST_CASE("Collectives: a broadcast gives every rank the root's tensor", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  for (int root = 0; root < world; ++root) {
    const auto results = AsRanks(backend, world, [&](Collectives& ranks) {
      at::Tensor tensor = Pattern(50'001, at::kHalf, ranks.rank() + 1);
      TORCH_CHECK(ranks.Broadcast("weights", root, tensor).ok());
      return tensor;
    });
    for (const at::Tensor& result : results) {
      CHECK(at::equal(result, Pattern(50'001, at::kHalf, root + 1)));
    }
  }
}

TEST_CASE("Collectives: no rank leaves a barrier before all have arrived", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const int world = GENERATE(1, 2, 3, 4);
  std::atomic<int> num_arrived = 0;
  const auto seen = AsRanks(backend, world, [&](Collectives& ranks) {
    for (int round = 1; round <= 20; ++round) {
      ++num_arrived;
      TORCH_CHECK(ranks.Barrier("start").ok());
      TORCH_CHECK(num_arrived >= round * world);
      TORCH_CHECK(ranks.Barrier("part").ok());
    }
    return num_arrived.load();
  });
  CHECK(seen == std::vector<int>(world, 20 * world));
}

TEST_CASE("Collectives: bytes are counted by the ring's formulas", "[collectives]") {
  CHECK(WireBytes(CollectiveKind::kAllReduceSum, 4, 1000, false) == 1500);
  CHECK(WireBytes(CollectiveKind::kAllReduceMax, 2, 1000, false) == 1000);
  CHECK(WireBytes(CollectiveKind::kAllReduceSum, 1, 1000, false) == 0);
  CHECK(WireBytes(CollectiveKind::kAllReduceSum, 3, 4, false) == 6);  // 5.33
  CHECK(WireBytes(CollectiveKind::kAllGather, 4, 1000, false) == 750);
  CHECK(WireBytes(CollectiveKind::kReduceScatterSum, 4, 1000, true) == 750);
  CHECK(WireBytes(CollectiveKind::kBroadcast, 4, 1000, false) == 1000);
  CHECK(WireBytes(CollectiveKind::kBroadcast, 4, 1000, true) == 0);
  CHECK(WireBytes(CollectiveKind::kBarrier, 4, 0, false) == 0);
}

TEST_CASE("Collectives: a communicator counts by name", "[collectives]") {
  const auto traffic = AsRanks(AnyBackend(), 2, [&](Collectives& ranks) {
    at::Tensor tensor = at::zeros({1000}, at::kFloat);
    for (int i = 0; i < 3; ++i) TORCH_CHECK(ranks.AllReduceSum("sums", tensor).ok());
    TORCH_CHECK(ranks.Broadcast("news", 1, tensor).ok());
    return ranks.traffic();
  });
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(traffic[rank].size() == 2);
    CHECK(traffic[rank].at("sums").num_calls == 3);
    CHECK(traffic[rank].at("sums").wire_bytes == 12'000);
    CHECK(traffic[rank].at("news").payload_bytes == 4'000);
    CHECK(traffic[rank].at("news").wire_bytes == (rank == 1 ? 0 : 4'000));
  }
}

TEST_CASE("Collectives: a communicator counts the bytes of its axis", "[collectives]") {
  const TestBackend backend = AnyBackend();
  const auto totals = AsRanks(backend, 4, [&](Collectives& ranks) {
    at::Tensor tensor = at::zeros({1000}, at::kFloat);
    at::Tensor piece = at::zeros({250}, at::kFloat);
    TORCH_CHECK(ranks.AllReduceSum("a", tensor).ok());             // 4000: 6000
    TORCH_CHECK(ranks.AllGather("b", piece, tensor).ok());         // 4000: 3000
    TORCH_CHECK(ranks.ReduceScatterSum("c", tensor, piece).ok());  // 4000: 3000
    TORCH_CHECK(ranks.Broadcast("d", 1, piece).ok());              // 1000: 1000 or 0
    TORCH_CHECK(ranks.Barrier("e").ok());
    auto pending = ranks.StartAllGather("f", piece, tensor);  // 4000: 3000
    TORCH_CHECK(pending.ok() && ranks.Wait(*pending).ok());
    return ranks.totals();
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(totals[rank].num_calls == 6);
    CHECK(totals[rank].payload_bytes == 17'000);
    CHECK(totals[rank].wire_bytes == (rank == 1 ? 15'000 : 16'000));
    CHECK(totals[rank].waited > absl::ZeroDuration());
  }
}

}  // namespace lathe::worker
