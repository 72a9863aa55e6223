// Measures an all-reduce between processes on this machine, by size and backend.
//
//   lathe_collectives_bench [WORLD] [BACKEND…]
//
// Prints one line per backend and size: the median and the 99th percentile of rank 0's back-to-back
// calls, and 57 times the median, the calls of a decode pass with 28 layers. The 32 KiB size is
// [8, 1024] fp32, a small model's decode batch.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "libs/common/time/clock.h"
#include "services/worker/collectives/transports/transports.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

constexpr int kPassCalls = 57;  // 2 · 28 layers + 1

CollectivesOptions Options() { return {.timeout = absl::Seconds(60)}; }

std::unique_ptr<Collectives> Connect(const std::string& backend, Rendezvous& rendezvous,
                                     const SubMesh& place, FlightRecorder& recorder) {
  if (backend == "gloo") {
    return ConnectGloo(rendezvous, OpenGlooDevice("127.0.0.1").value(), place, Options(), recorder)
        .value();
  }
  if (backend == "shared") {
    return ConnectSharedMemory(rendezvous, place, Options(), recorder).value();
  }
  absl::FPrintF(stderr, "backend is %s, want gloo or shared\n", backend);
  std::exit(2);
}

double Microseconds(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

void Measure(const std::string& backend, Collectives& ranks, int64_t num_bytes) {
  at::Tensor tensor = at::ones({num_bytes / 4}, at::kFloat);
  const int64_t num_calls = std::clamp<int64_t>((int64_t{1} << 28) / num_bytes, 40, 4000);
  std::vector<absl::Duration> waited;
  for (int64_t i = 0; i < num_calls; ++i) {
    tensor.fill_(1);
    const absl::Time begin = SteadyNow();
    TORCH_CHECK(ranks.AllReduceSum("bench", tensor).ok());
    if (i >= num_calls / 10) waited.push_back(SteadyNow() - begin);
  }
  if (ranks.rank() != 0) return;
  std::sort(waited.begin(), waited.end());
  const double median = Microseconds(waited[waited.size() / 2]);
  absl::PrintF("%-7s %d ranks %9d bytes: median %9.1f us, p99 %9.1f us, %d calls %8.2f ms\n",
               backend, ranks.world(), num_bytes, median,
               Microseconds(waited[waited.size() * 99 / 100]), kPassCalls,
               median * kPassCalls / 1000);
  std::fflush(stdout);
}

void RunRank(int rank, int world, ListeningSocket socket,
             const std::vector<std::string>& backends) {
  at::set_num_threads(1);
  const RendezvousOptions options{
      .rank = rank, .world = world, .session = "bench", .timeout = absl::Seconds(60)};
  const uint16_t port = socket.port();
  const auto rendezvous = rank == 0 ? Rendezvous::Serve(std::move(socket), options).value()
                                    : Rendezvous::Join("127.0.0.1", port, options).value();
  const SubMesh place = Mesh::Create({.tp = world}, rank, world).value().Along({Axis::kTp});
  FlightRecorder recorder;
  for (const std::string& backend : backends) {
    const auto ranks = Connect(backend, *rendezvous, place, recorder);
    for (const int64_t num_bytes : {4, 1 << 10, 8 << 10, 32 << 10, 128 << 10, 1 << 20, 16 << 20}) {
      Measure(backend, *ranks, num_bytes);
    }
    TORCH_CHECK(ranks->Barrier("end").ok());
  }
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  using lathe::worker::ListeningSocket;
  const int world = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<std::string> backends(argv + std::min(argc, 2), argv + argc);
  if (backends.empty()) backends = {"gloo", "shared"};
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  for (int rank = 1; rank < world; ++rank) {
    if (fork() != 0) continue;
    lathe::worker::RunRank(rank, world, std::move(socket), backends);
    std::_Exit(0);
  }
  lathe::worker::RunRank(0, world, std::move(socket), backends);
  while (wait(nullptr) > 0) {
  }
  return 0;
}
