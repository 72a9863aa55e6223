#include "tools/lathe/up_command.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/memory/available_memory.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/announce.h"
#include "tools/lathe/launcher.h"
#include "tools/lathe/memory_check.h"
#include "tools/lathe/program.h"
#include "tools/lathe/signals.h"
#include "tools/lathe/up_options.h"

namespace lathe::cli {
namespace {

// On a GPU the weights are streamed to it and need no room here.
absl::Status CheckHostMemory(const UpOptions& options, const ModelFolder& model) {
  if (options.device == "cuda") return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
  return CheckMemory(options.dp * model.loaded_bytes, available);
}

// Claims a port for each page: that of `text` and the next ones, or any for port 0.
absl::StatusOr<LaunchPlan::Metrics> ClaimMetricsPorts(const std::string& text, int num_ranks,
                                                      int api_port) {
  const int max_first_port = 65535 - 1 - num_ranks;
  ASSIGN_OR_RETURN(const ListenAddress first, ParseListenAddress(text, "metrics_listen"));
  if (first.port > max_first_port) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "metrics_listen has port %d, limit is %d: the engine's and the worker's "
                          "are on the next %d",
                          first.port, max_first_port, 1 + num_ranks)),
                      "configuration", "metrics_listen");
  }
  LaunchPlan::Metrics metrics{first, first, std::vector<ListenAddress>(num_ranks, first)};
  std::vector<ListenAddress*> addresses = {&metrics.gateway, &metrics.engine};
  for (ListenAddress& worker : metrics.workers) addresses.push_back(&worker);
  std::set<int> claimed = {api_port};
  for (ListenAddress* address : addresses) {
    if (first.port > 0) address->port = first.port + static_cast<int>(claimed.size()) - 1;
    RETURN_IF_ERROR(ClaimPort(*address));
    // A free port that was only looked at may be handed out again.
    while (first.port == 0 && claimed.contains(address->port)) {
      address->port = 0;
      RETURN_IF_ERROR(ClaimPort(*address));
    }
    if (!claimed.insert(address->port).second) {
      return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                            "metrics_listen and the %d ports after it include that of listen, %d",
                            1 + num_ranks, address->port)),
                        "configuration", "metrics_listen");
    }
  }
  return metrics;
}

void SayPlan(const LaunchPlan& plan, Announcer& announcer) {
  announcer.Say("data", plan.data_dir.path().string());
  announcer.Say("model",
                absl::StrFormat("%s from %s (%.2f GB)", plan.model.name, plan.model.path.string(),
                                static_cast<double>(plan.model.weight_bytes) / 1e9));
  if (plan.model.name.find('/') != std::string::npos) return;
  announcer.Say("warning",
                absl::StrFormat("'%s' is no Hugging Face id: a client that has only this "
                                "name finds no tokenizer; --model ORG/%s=%s gives one",
                                plan.model.name, plan.model.name, plan.model.path.string()));
}

}  // namespace

absl::Status UpCommand(int argc, const char* const* argv) {
  Signals signals;
  Announcer announcer;
  ASSIGN_OR_RETURN(const UpOptions options, ParseUpOptions(argc, argv));
  ASSIGN_OR_RETURN(ModelFolder model, ResolveModel(options.model, DefaultHubCache()));
  ASSIGN_OR_RETURN(ListenAddress listen, ParseListenAddress(options.listen));
  RETURN_IF_ERROR(CheckHostMemory(options, model));

  LaunchPlan plan{.data_dir = OpenDataDir(options.data),
                  .model = std::move(model),
                  .listen = std::move(listen),
                  .has_tls = options.tls.enabled(),
                  .public_url = options.public_url,
                  .drain_timeout = options.drain_timeout,
                  .workers = WorkerNames(options.num_ranks())};
  RETURN_IF_ERROR(plan.data_dir.Create());
  ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Take(plan.data_dir));
  RETURN_IF_ERROR(ClaimPort(plan.listen));
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(plan.metrics, ClaimMetricsPorts(options.metrics_listen, options.num_ranks(),
                                                     plan.listen.port));
  }
  ASSIGN_OR_RETURN(plan.children, ChildSpecs(options, plan, ProgramDir()));

  SayPlan(plan, announcer);
  return Launcher(plan, signals, announcer).Run();
}

}  // namespace lathe::cli
