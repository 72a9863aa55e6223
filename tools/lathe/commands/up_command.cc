#include "tools/lathe/commands/up_command.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/memory/process_memory.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/announce.h"
#include "tools/lathe/launch/launcher.h"
#include "tools/lathe/launch/memory_check.h"
#include "tools/lathe/launch/metrics_pages.h"
#include "tools/lathe/launch/up_options.h"
#include "tools/lathe/program.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kMaxChildExit = absl::Seconds(10);

// A GPU needs no check: the weights are streamed to it and take no host memory.
absl::Status CheckHostMemory(const UpOptions& options, const std::vector<ModelFolder>& models,
                             int64_t available) {
  if (options.device == "cuda") return absl::OkStatus();
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelOptions& model = options.models[i];
    RETURN_IF_ERROR(
        CheckMemory({.model = models[i].name,
                     .loaded_bytes = options.num_groups * model.dp * models[i].loaded_bytes,
                     .available_bytes = available,
                     .share = model.memory_share}));
  }
  return absl::OkStatus();
}

absl::StatusOr<LaunchPlan::Metrics> ClaimPages(const UpOptions& options, const LaunchPlan& plan,
                                               absl::Duration patience) {
  const int count = 2 + options.num_ranks();
  ASSIGN_OR_RETURN(const std::vector<ListenAddress> pages,
                   ClaimMetricsPages(options.metrics_listen, count, plan.listen.port, patience));
  return LaunchPlan::Metrics{pages[0], pages[1], {pages.begin() + 2, pages.end()}};
}

void SayModel(const ModelFolder& model, Announcer& announcer) {
  announcer.Say("model", absl::StrFormat("%s from %s (%.2f GB)", model.name, model.path.string(),
                                         static_cast<double>(model.weight_bytes) / 1e9));
  if (model.name.find('/') != std::string::npos) return;
  announcer.Say("warning", absl::StrFormat("'%s' is no Hugging Face id: a client that has only "
                                           "this name finds no tokenizer; --model ORG/%s=%s gives "
                                           "one",
                                           model.name, model.name, model.path.string()));
}

}  // namespace

absl::Status UpCommand(int argc, const char* const* argv) {
  Signals signals;
  Announcer announcer;
  ASSIGN_OR_RETURN(const UpOptions options, ParseUpOptions(argc, argv));
  std::vector<std::string> arguments;
  for (const ModelOptions& model : options.models) arguments.push_back(model.model);
  ASSIGN_OR_RETURN(std::vector<ModelFolder> models, ResolveModels(arguments, DefaultHubCache()));
  ASSIGN_OR_RETURN(ListenAddress listen, ParseListenAddress(options.listen));
  RETURN_IF_ERROR(CheckVisibleDevices(options.num_ranks(), options.device));
  ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
  RETURN_IF_ERROR(CheckHostMemory(options, models, available));

  // The memory that is free before any worker starts is divided. A worker that measures later would
  // see what the other groups have left.
  std::vector<GroupPlan> groups = PlanGroups(options, models, available);
  LaunchPlan plan{.data_dir = OpenDataDir(options.data),
                  .models = std::move(models),
                  .listen = std::move(listen),
                  .has_tls = options.tls.enabled(),
                  .public_url = options.public_url,
                  .drain_timeout = options.drain_timeout,
                  .groups = std::move(groups)};
  RETURN_IF_ERROR(plan.data_dir.Create());
  ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Take(plan.data_dir));
  // The children of a `lathe up` that was killed die with it, but their ports are free a little
  // later.
  const absl::Duration patience =
      std::filesystem::exists(plan.data_dir.pids()) ? kMaxChildExit : absl::ZeroDuration();
  RETURN_IF_ERROR(ClaimPort(plan.listen, patience));
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(plan.metrics, ClaimPages(options, plan, patience));
  }
  ASSIGN_OR_RETURN(plan.children, ChildSpecs(options, plan, ProgramDir()));

  announcer.Say("data", plan.data_dir.path().string());
  for (const ModelFolder& model : plan.models) SayModel(model, announcer);
  return Launcher(plan, signals, announcer).Run();
}

}  // namespace lathe::cli
