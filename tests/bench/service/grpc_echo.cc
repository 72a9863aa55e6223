// Measures a unary gRPC call between two processes on this machine. The server answers at once on a
// unix socket; the client sends calls one after another. Prints JSON.
//   lathe_grpc_echo SOCKET_PATH CALLS
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/server.h"
#include "protos/lathe/v1/engine.grpc.pb.h"

namespace lathe::bench {
namespace {

class Echo : public v1::Engine::CallbackService {
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest*,
                                      v1::HeartbeatResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// Serves until the process is killed.
void Serve(const std::string& address) {
  Echo echo;
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  AddListener(builder, address);
  builder.RegisterService(&echo);
  builder.BuildAndStart()->Wait();
}

void Call(v1::Engine::Stub& stub) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::HeartbeatRequest request;
  v1::HeartbeatResponse response;
  if (!stub.Heartbeat(&context, request, &response).ok()) std::abort();
}

void Measure(const std::string& address, int num_calls) {
  const auto stub = v1::Engine::NewStub(MakeChannel(address));
  constexpr int kNumWarm = 100;
  for (int i = 0; i < kNumWarm; ++i) Call(*stub);
  std::vector<double> micros(static_cast<size_t>(num_calls));
  for (double& one : micros) {
    const auto begin = std::chrono::steady_clock::now();
    Call(*stub);
    one =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(micros.begin(), micros.end());
  std::printf("{\"p50_us\": %.1f, \"p99_us\": %.1f}\n", micros[micros.size() / 2],
              micros[micros.size() * 99 / 100]);
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  lathe::DisableMutexChecks();
  const std::string address = std::string("unix:") + argv[1];
  const pid_t server = fork();  // before gRPC starts threads
  if (server == 0) {
    lathe::bench::Serve(address);
    return 0;
  }
  lathe::bench::Measure(address, std::atoi(argv[2]));
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}
