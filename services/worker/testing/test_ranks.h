// Ranks as threads, over any CPU backend, for tests.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/collectives/transports/transports.h"

namespace lathe::worker {

enum class TestBackend { kLocal, kGloo, kSharedMemory };

inline TestBackend AnyBackend() {
  return GENERATE(TestBackend::kLocal, TestBackend::kGloo, TestBackend::kSharedMemory);
}

inline std::ostream& operator<<(std::ostream& out, TestBackend backend) {
  switch (backend) {
    case TestBackend::kLocal:
      return out << "local";
    case TestBackend::kGloo:
      return out << "gloo";
    case TestBackend::kSharedMemory:
      return out << "shared memory";
  }
  return out;
}

// Long enough for a very busy machine.
inline constexpr absl::Duration kTestPatience = absl::Seconds(60);

// Runs `body(rank)` in a thread for each rank and returns the results. Assertions belong in the
// calling thread.
template <typename Body>
auto InThreads(int world, Body&& body) {
  std::vector<std::invoke_result_t<Body, int>> results(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] { results[rank] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline SubMesh TestPlace(int rank, int world) {
  return Mesh::Create({.tp = world}, rank, world).value().Along({Axis::kTp});
}

// Returns a connected rendezvous on the loopback address for each rank. Rank 0 serves it.
inline std::vector<std::unique_ptr<Rendezvous>> RendezvousOnLoopback(int world) {
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  const uint16_t port = socket.port();
  return InThreads(world, [&](int rank) {
    const RendezvousOptions options{
        .rank = rank, .world = world, .session = "test", .timeout = kTestPatience};
    return rank == 0 ? Rendezvous::Serve(std::move(socket), options).value()
                     : Rendezvous::Join("127.0.0.1", port, options).value();
  });
}

// The communicators of all ranks of one sub-mesh "tp".
inline std::vector<std::unique_ptr<Collectives>> MakeTestRanks(TestBackend backend, int world,
                                                               const CollectivesOptions& options,
                                                               FlightRecorder& recorder) {
  if (backend == TestBackend::kLocal) return MakeLocalCollectives("tp", world, options, recorder);
  const auto rendezvous = RendezvousOnLoopback(world);
  return InThreads(world, [&](int rank) {
    if (backend == TestBackend::kSharedMemory) {
      return ConnectSharedMemory(*rendezvous[rank], TestPlace(rank, world), options, recorder)
          .value();
    }
    return ConnectGloo(*rendezvous[rank], OpenGlooDevice("127.0.0.1").value(),
                       TestPlace(rank, world), options, recorder)
        .value();
  });
}

// Runs `body(collectives)` as every rank of a world.
template <typename Body>
auto AsRanks(TestBackend backend, int world, Body&& body) {
  FlightRecorder recorder;
  auto ranks = MakeTestRanks(backend, world, {.timeout = kTestPatience}, recorder);
  return InThreads(world, [&](int rank) { return body(*ranks[rank]); });
}

}  // namespace lathe::worker
