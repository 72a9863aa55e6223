#include "services/worker/collectives/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

// Returns the status of each rank's rendezvous with `options_of(rank)`. The first process serves
// it.
template <typename OptionsOf>
std::vector<absl::Status> RunRendezvous(int num_processes, OptionsOf&& options_of) {
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  const uint16_t port = socket.port();
  // Kept until all ranks are done, because rank 0's object holds the store.
  std::vector<std::unique_ptr<Rendezvous>> met(num_processes);
  return InThreads(num_processes, [&](int process) {
    const RendezvousOptions options = options_of(process);
    absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous =
        process == 0 ? Rendezvous::Serve(std::move(socket), options)
                     : Rendezvous::Join("127.0.0.1", port, options);
    if (!rendezvous.ok()) return rendezvous.status();
    met[process] = *std::move(rendezvous);
    return absl::OkStatus();
  });
}

// Returns 0 or errno.
int ConnectTo(const char* address, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in target{.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, address, &target.sin_addr);
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof(target));
  const int error = result == 0 ? 0 : errno;
  close(fd);
  return error;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

TEST_CASE("Rendezvous: ranks read each other's values", "[collectives]") {
  auto ranks = RendezvousOnLoopback(3);
  const auto seen = InThreads(3, [&](int rank) {
    TORCH_CHECK(ranks[rank]->Set(std::to_string(rank), std::string(1, 'a' + rank)).ok());
    std::string all;
    for (int other = 0; other < 3; ++other) all += ranks[rank]->Get(std::to_string(other)).value();
    return all;
  });
  CHECK(seen == std::vector<std::string>(3, "abc"));
}

TEST_CASE("Rendezvous: a rank with another mesh, version or base model is refused by name",
          "[collectives]") {
  const auto [what, usual, other] = GENERATE(table<std::string, std::string, std::string>(
      {{"mesh", "dp 1 x fsdp 1 x tp 3", "dp 3 x fsdp 1 x tp 1"},
       {"version", "0.4.0", "0.5.0"},
       {"base model", "sha256:12", "sha256:13"}}));
  const auto statuses = RunRendezvous(3, [&](int rank) {
    return RendezvousOptions{.rank = rank,
                             .world = 3,
                             .session = "s",
                             .must_agree = {{"same", "same"}, {what, rank == 2 ? other : usual}},
                             .timeout = kTestPatience};
  });
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(MessageOf(status) ==
          "rendezvous: rank 2 has " + what + " " + other + ", rank 0 has " + usual);
  }
}

TEST_CASE("Rendezvous: a rank beyond the world of rank 0 gets the reason", "[collectives]") {
  const auto statuses = RunRendezvous(3, [&](int rank) {
    const std::string mesh = rank == 2 ? "dp 1 x fsdp 1 x tp 3" : "dp 1 x fsdp 1 x tp 2";
    return RendezvousOptions{.rank = rank,
                             .world = rank == 2 ? 3 : 2,
                             .session = "s",
                             .must_agree = {{"mesh", mesh}},
                             .timeout = kTestPatience};
  });
  CHECK(statuses[0].ok());
  CHECK(statuses[1].ok());
  CHECK(MessageOf(statuses[2]) ==
        "rendezvous: rank 2 has mesh dp 1 x fsdp 1 x tp 3, rank 0 has dp 1 x fsdp 1 x tp 2");
}

TEST_CASE("Rendezvous: a rank that does not come is named", "[collectives]") {
  const auto statuses = RunRendezvous(1, [&](int) {
    return RendezvousOptions{
        .rank = 0, .world = 2, .session = "s", .timeout = absl::Milliseconds(300)};
  });
  CHECK(statuses[0].code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(MessageOf(statuses[0]) == "rendezvous: rank 1 of 2 has not arrived in 300ms");
}

TEST_CASE("Rendezvous: two processes cannot be one rank", "[collectives]") {
  const auto statuses = RunRendezvous(3, [&](int process) {
    return RendezvousOptions{
        .rank = std::min(process, 1), .world = 2, .session = "s", .timeout = kTestPatience};
  });
  CHECK(statuses[0].ok());
  CHECK(statuses[1].ok() != statuses[2].ok());
  CHECK(MessageOf(statuses[1].ok() ? statuses[2] : statuses[1]) ==
        "rendezvous: another process is rank 1 already");
}

TEST_CASE("Rendezvous: no store at the address is an error in time", "[collectives]") {
  // A port that was free a moment ago.
  const uint16_t port = ListeningSocket::Open("127.0.0.1").value().port();
  const auto rendezvous =
      Rendezvous::Join("127.0.0.1", port,
                       {.rank = 1, .world = 2, .session = "s", .timeout = absl::Milliseconds(300)});
  CHECK(rendezvous.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(MessageOf(rendezvous.status()), Contains("rendezvous: no store at 127.0.0.1 port "));
}

TEST_CASE("Rendezvous: it is reached at its address only", "[collectives]") {
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  const uint16_t port = socket.port();
  const auto rendezvous = Rendezvous::Serve(
      std::move(socket), {.rank = 0, .world = 1, .session = "s", .timeout = kTestPatience});
  REQUIRE(rendezvous.ok());
  CHECK(ConnectTo("127.0.0.1", port) == 0);
  // This machine has that address too, and a socket on all addresses would accept here.
  CHECK(ConnectTo("127.0.0.2", port) == ECONNREFUSED);
}

TEST_CASE("Local address: one address or interface, never all", "[collectives]") {
  CHECK(LocalAddress("127.0.0.1").value() == "127.0.0.1");
  CHECK(LocalAddress("lo").value() == "127.0.0.1");
  for (const std::string all : {"0.0.0.0", "::"}) {
    CHECK(MessageOf(LocalAddress(all).status()) ==
          "rank address is " + all + ", which is every interface: name one, or its address");
    CHECK(!ListeningSocket::Open(all).ok());
    CHECK(!OpenGlooDevice(all).ok());
  }
  // An address of another machine. The error must not be Unavailable, which would be retried as a
  // lost rank.
  for (const std::string other : {"192.0.2.1", "no-such-if"}) {
    const absl::Status status = OpenGlooDevice(other).status();
    CHECK((absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)));
    CHECK_THAT(std::string(status.message()), Catch::Contains(other));
  }
  CHECK_THAT(MessageOf(LocalAddress("nonesuch0").status()),
             Catch::StartsWith("rank address is nonesuch0: neither an address nor an interface of "
                               "this machine that has one: ") &&
                 Catch::Contains("127.0.0.1 (lo)"));
}

TEST_CASE("Local address: a port that is taken is an error that names it", "[collectives]") {
  const ListeningSocket taken = ListeningSocket::Open("127.0.0.1").value();
  const auto second = ListeningSocket::Open("127.0.0.1", taken.port());
  CHECK_THAT(MessageOf(second.status()), Contains("cannot listen on 127.0.0.1 port " +
                                                  std::to_string(taken.port()) + ": bind: "));
}

TEST_CASE("Gloo collectives: a rank that does not connect is an error in time", "[collectives]") {
  auto rendezvous = RendezvousOnLoopback(2);
  FlightRecorder recorder;
  const auto alone = ConnectGloo(*rendezvous[0], OpenGlooDevice("127.0.0.1").value(),
                                 TestPlace(0, 2), {.timeout = absl::Milliseconds(500)}, recorder);
  CHECK(alone.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(MessageOf(alone.status()),
             Contains("cannot connect axis tp of 2 ranks as rank 0 (0 in the mesh) in 500ms: "));
}

TEST_CASE("Gloo collectives: they live on when the store is gone, which is then closed",
          "[collectives]") {
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  const uint16_t port = socket.port();
  FlightRecorder recorder;
  auto ranks = InThreads(2, [&](int rank) {
    const RendezvousOptions options{
        .rank = rank, .world = 2, .session = "test", .timeout = kTestPatience};
    const auto rendezvous = rank == 0 ? Rendezvous::Serve(std::move(socket), options).value()
                                      : Rendezvous::Join("127.0.0.1", port, options).value();
    auto connected = ConnectGloo(*rendezvous, OpenGlooDevice("127.0.0.1").value(),
                                 TestPlace(rank, 2), {.timeout = kTestPatience}, recorder)
                         .value();
    TORCH_CHECK(connected->Barrier("connected").ok());
    return connected;
  });
  CHECK(ListeningSocket::Open("127.0.0.1", port).status() == absl::OkStatus());
  const auto sums = InThreads(2, [&](int rank) {
    at::Tensor sum = at::full({1}, 1 << rank, at::kLong);
    TORCH_CHECK(ranks[rank]->AllReduceSum("sum", sum).ok());
    return sum.item<int64_t>();
  });
  CHECK(sums == std::vector<int64_t>{3, 3});
}

TEST_CASE("Gloo collectives: a mesh has communicators of several axes at once", "[collectives]") {
  auto rendezvous = RendezvousOnLoopback(4);
  FlightRecorder recorder;
  const auto sums = InThreads(4, [&](int rank) {
    const Mesh mesh = Mesh::Create({.dp = 2, .tp = 2}, rank, 4).value();
    const auto device = OpenGlooDevice("127.0.0.1").value();
    const CollectivesOptions options{.timeout = kTestPatience};
    const auto connect = [&](const SubMesh& place) {
      return ConnectGloo(*rendezvous[rank], device, place, options, recorder).value();
    };
    const auto tp = connect(mesh.Along({Axis::kTp}));
    const auto dp = connect(mesh.Along({Axis::kDp}));
    const auto world = connect(mesh.Along({Axis::kDp, Axis::kTp}));
    at::Tensor by_tp = at::full({1}, 1 << rank, at::kLong);
    at::Tensor by_dp = by_tp.clone();
    at::Tensor by_world = by_tp.clone();
    TORCH_CHECK(tp->AllReduceSum("tp", by_tp).ok());
    TORCH_CHECK(dp->AllReduceSum("dp", by_dp).ok());
    TORCH_CHECK(world->AllReduceSum("world", by_world).ok());
    return std::vector<int64_t>{by_tp.item<int64_t>(), by_dp.item<int64_t>(),
                                by_world.item<int64_t>()};
  });
  CHECK(sums[0] == std::vector<int64_t>{0b0011, 0b0101, 0b1111});
  CHECK(sums[1] == std::vector<int64_t>{0b0011, 0b1010, 0b1111});
  CHECK(sums[2] == std::vector<int64_t>{0b1100, 0b0101, 0b1111});
  CHECK(sums[3] == std::vector<int64_t>{0b1100, 0b1010, 0b1111});
}

}  // namespace lathe::worker
