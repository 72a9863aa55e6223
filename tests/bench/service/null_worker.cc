// lathe-null-worker: attaches to an engine like lathe-worker, but answers commands without
// computing, so that a benchmark measures only the service.
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/config/option_set.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "services/worker/rpc/attach_client.h"
#include "tests/bench/service/null_executor.h"

namespace lathe::worker {
namespace {

struct Options {
  std::string data_dir;
  std::string base_model;
  int64_t tokens_per_second = 0;
};

Options ParseOrExit(int argc, char** argv) {
  Options options;
  OptionSet set("lathe-null-worker", "Answers everything at once; for benches of the service.");
  set.Add(&options.data_dir, "worker.data_dir", "", "the engine's data directory",
          {.required = true});
  set.Add(&options.base_model, "worker.model", "null", "name of the base model it claims to have");
  set.Add(&options.tokens_per_second, "worker.tokens_per_second", 0,
          "speed of training; 0: at once");
  set.ParseOrExit(argc, argv);
  return options;
}

int Run(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::unique_ptr<AttachClient> client;
  NullExecutor executor(
      {.base_model = options.base_model,
       .checkpoint_root = options.data_dir + "/checkpoints",
       .tokens_per_second = options.tokens_per_second},
      {.on_report = [&](ReportEvent event) { client->OnReport(std::move(event)); },
       .on_state_changed = [&] { client->OnStateChanged(); }});
  client = std::make_unique<AttachClient>(
      AttachOptions{.engine_addresses = {"unix:" + options.data_dir + "/run/worker.sock"},
                    .secret_path = options.data_dir + "/run/secret"},
      WorkerIdentity{
          .group = "default", .process_id = RandomId(16), .base_model = options.base_model},
      executor, [](const std::string&) { kill(getpid(), SIGTERM); });
  client->Start();
  int signal = 0;
  sigwait(&signals, &signal);
  client->Stop();
  return 0;
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  lathe::DisableMutexChecks();
  const lathe::worker::Options options = lathe::worker::ParseOrExit(argc, argv);
  lathe::InitLogging("worker", "warn");
  return lathe::worker::Run(options);
}
