#include "services/worker/collectives/communicators.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

// Runs body(options, socket) as every rank. The rendezvous is on the loopback address.
template <typename Body>
auto AtOneRendezvous(const MeshShape& mesh, Body&& body) {
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  const RendezvousPoint rendezvous{
      .session = "test", .address = socket.address(), .port = socket.port()};
  return InThreads(mesh.world(), [&](int rank) {
    const ConnectOptions options{.mesh = mesh,
                                 .rank = rank,
                                 .rendezvous = rendezvous,
                                 .must_agree = {{"version", "1"}},
                                 .rendezvous_timeout = kTestPatience,
                                 .timeout = kTestPatience};
    std::optional<ListeningSocket> own;
    if (rank == 0) own.emplace(std::move(socket));
    return body(options, std::move(own));
  });
}

// Sums 1 << rank over the group, so that the result shows which ranks are in it.
int64_t SumOver(const RankGroup& group, int rank) {
  const at::Tensor number = at::full({1}, int64_t{1} << rank, at::kLong);
  group.Sum("number", number);
  return number.item<int64_t>();
}

TEST_CASE("each rank speaks to those of its column, its row, and all", "[collectives]") {
  struct AxisSums {
    int64_t tp, data, all, control;
    int tp_rank, data_rank;
  };
  const std::vector<AxisSums> sums = AtOneRendezvous(
      {.dp = 2, .tp = 2}, [](const ConnectOptions& options, auto socket) -> AxisSums {
        const auto ranks = ConnectRanks(std::move(socket), options).value();
        const int rank = options.rank;
        return {.tp = SumOver(ranks->groups().tp, rank),
                .data = SumOver(ranks->groups().data, rank),
                .all = SumOver(ranks->groups().all, rank),
                .control = SumOver(ranks->control(), rank),
                .tp_rank = ranks->groups().tp.rank(),
                .data_rank = ranks->groups().data.rank()};
      });
  CHECK(sums[0].tp == 0b0011);
  CHECK(sums[3].tp == 0b1100);
  CHECK(sums[0].data == 0b0101);
  CHECK(sums[3].data == 0b1010);
  for (int rank = 0; rank < 4; ++rank) {
    const AxisSums& of_rank = sums[rank];
    CHECK(of_rank.tp_rank == rank % 2);
    CHECK(of_rank.data_rank == rank / 2);
    CHECK(of_rank.all == 0b1111);
    CHECK(of_rank.control == 0b1111);
  }
}

TEST_CASE("the rendezvous socket is closed after the rendezvous", "[collectives]") {
  const std::vector<absl::Status> statuses =
      AtOneRendezvous({.dp = 2, .tp = 2}, [](const ConnectOptions& options, auto socket) {
        const auto ranks = ConnectRanks(std::move(socket), options).value();
        SumOver(ranks->control(), options.rank);  // every rank has left the rendezvous
        absl::Status status;
        if (options.rank == 0) {
          status = ListeningSocket::Open("127.0.0.1", options.rendezvous.port).status();
        }
        SumOver(ranks->control(), options.rank);
        return status;
      });
  CHECK(statuses[0] == absl::OkStatus());
}

TEST_CASE("an axis of one rank is alone", "[collectives]") {
  const std::vector<bool> are_alone =
      AtOneRendezvous({.tp = 2}, [](const ConnectOptions& options, auto socket) {
        return ConnectRanks(std::move(socket), options).value()->groups().data.is_alone();
      });
  CHECK(are_alone == std::vector<bool>{true, true});
}

TEST_CASE("ranks that were started differently refuse each other by name", "[collectives]") {
  const std::vector<absl::Status> statuses =
      AtOneRendezvous({.tp = 2}, [](ConnectOptions options, auto socket) {
        if (options.rank == 1) options.must_agree["version"] = std::string("2");
        return ConnectRanks(std::move(socket), options).status();
      });
  for (const absl::Status& status : statuses) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Contains("rank 1 has version 2, rank 0 has 1"));
  }
}

TEST_CASE("ranks with other meshes of one size refuse each other", "[collectives]") {
  const std::vector<absl::Status> statuses =
      AtOneRendezvous({.tp = 2}, [](ConnectOptions options, auto socket) {
        if (options.rank == 1) options.mesh = {.dp = 2};
        return ConnectRanks(std::move(socket), options).status();
      });
  for (const absl::Status& status : statuses) {
    CHECK_THAT(std::string(status.message()), Contains("rank 1 has mesh dp 2 x fsdp 1 x tp 1"));
  }
}

TEST_CASE("the way to an address is known by its own end", "[collectives]") {
  CHECK(LocalAddressTowards("127.0.0.1").value() == "127.0.0.1");
  CHECK(absl::IsInvalidArgument(LocalAddressTowards("localhost").status()));
}

}  // namespace
}  // namespace lathe::worker
