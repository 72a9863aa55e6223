#include "services/worker/worker_options.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/config/option_set.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/launch/launch_place.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/logging/logging.h"
#include "libs/common/object_store/checkpoint_cache.h"
#include "libs/common/object_store/checkpoint_objects.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Saves may take this long, because no other work waits for them.
constexpr absl::Duration kUploadPatience = absl::Seconds(60);
// All work of the worker waits for a fetch. A store that sends bytes may take longer.
constexpr absl::Duration kFetchPatience = absl::Seconds(5);
// A store that is away does not keep a worker from loading its base model.
constexpr absl::Duration kOwnerPatience = absl::Seconds(4);

struct NamedPath {
  std::string name;
  std::string path;
};

// Parses [NAME=]PATH. The name defaults to that of the folder.
NamedPath SplitModel(const std::string& model) {
  const size_t equals = model.find('=');
  if (equals != std::string::npos) return {model.substr(0, equals), model.substr(equals + 1)};
  std::filesystem::path path = std::filesystem::absolute(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return {path.filename().string(), model};
}

std::string RunDir(const WorkerOptions& options) {
  if (!options.run_dir.empty()) return options.run_dir;
  return (std::filesystem::path(options.data_dir) / "run").string();
}

// A name like org/model is an id that clients can load by themselves. The path of any other model
// is valid on this machine only, and is sent only to clients that need it.
std::string TokenizerId(const std::string& given, const NamedPath& model) {
  if (!given.empty() || model.name.find('/') != std::string::npos) return given;
  return std::filesystem::absolute(model.path).lexically_normal().string();
}

// Clamps numbers outside int, which are invalid as a rank or a world anyway.
int ToInt(int64_t number) {
  return static_cast<int>(std::clamp<int64_t>(number, std::numeric_limits<int>::min(),
                                              std::numeric_limits<int>::max()));
}

NonFiniteGradients ToPolicy(const std::string& name) {
  if (name == "apply") return NonFiniteGradients::kApply;
  if (name == "fail") return NonFiniteGradients::kFail;
  return NonFiniteGradients::kSkip;
}

void AddGroup(OptionSet& set, WorkerOptions& options) {
  set.Add(&options.group, "worker.group", "default", "name of the worker group");
  set.Add(&options.rank, "worker.rank", -1,
          "number of this process in the group; default: RANK of torchrun, LWS_WORKER_INDEX of a "
          "LeaderWorkerSet or JOB_COMPLETION_INDEX of an indexed job; 0 in a group of one "
          "process");
  set.Add(&options.world, "worker.world", 0,
          "number of processes in the group, to check; default: dp x fsdp x tp");
  set.Add(&options.mesh.dp, "worker.dp", 1,
          "number of parts into which the rows of every pass are split");
  set.Add(&options.mesh.fsdp, "worker.fsdp", 1,
          "number of ranks that each keep a part of the base weights; rows are split as with dp");
  set.Add(&options.mesh.tp, "worker.tp", 1, "number of parts into which every matrix is split");
  set.Add(&options.role, "worker.role", "both",
          "role of the group; of several groups of a base model, some may train and others sample",
          {.choices = {"both", "train", "sample"}});
  set.Add(&options.rendezvous, "worker.rendezvous", "",
          "address or interface of rank 0's machine for the rendezvous of the ranks, on a "
          "private network; default: the address from which it reaches the engine");
  set.Add(&options.version_listen, "worker.version_listen", "",
          "for a group that only trains: address or interface at which other groups read sampler "
          "versions from its memory, on a private network; none: versions go as files; default: "
          "as rendezvous");
  set.Add(
      &options.supervised, "worker.supervised", false,
      "true if the parent of this process reports to the engine how it ends, as `lathe up` does");
}

void AddModel(OptionSet& set, WorkerOptions& options) {
  set.Add(&options.model, "worker.model", "", "[NAME=]PATH of an HF model folder",
          {.required = true});
  set.Add(&options.device, "worker.device", "auto", "auto, cpu or cuda",
          {.choices = {"auto", "cpu", "cuda"}});
  set.Add(
      &options.compute_dtype, "worker.compute_dtype", "auto",
      "products with bf16 weights: fp32 widens the weights, bf16 rounds the activations, auto is "
      "bf16 if the device supports it",
      {.choices = {"auto", "fp32", "bf16"}});
  set.Add(&options.num_threads, "worker.threads", 0, "threads of tensor code; 0: one per core");
  set.Add(&options.tokenizer_id, "worker.tokenizer", "",
          "tokenizer id for clients; default: NAME if it has the form org/model, else the "
          "model's absolute path");
}

void AddWork(OptionSet& set, WorkerOptions& options) {
  set.Add(&options.memory_fraction, "worker.memory_fraction", 0.9,
          "share of the device's free memory to plan with, weights included");
  set.Add(&options.host_memory_mib, "worker.host_memory_mib", 0,
          "on a CPU: upper bound in MiB of the free memory that the group's ranks on this "
          "machine plan with; 0: no bound");
  set.Add(&options.numerics, "worker.numerics", "fast",
          "exact: a client's results have the same bits whatever else runs; fast: they may "
          "differ by rounding",
          {.choices = {"fast", "exact"}});
  set.Add(&options.sampling_share, "worker.sampling_share", 0.5,
          "share of device time for sampling while there is training too");
  set.Add(&options.prefill_stall_ms, "worker.prefill_stall_ms", 0,
          "milliseconds by which prompts may delay a decode pass; 0: 100 on a CPU, 20 on a GPU");
  set.Add(&options.prefix_cache, "worker.prefix_cache", true,
          "true if a tenant's prompts reuse keys and values of its earlier requests with the "
          "same tokens and weights");
  set.Add(&options.resident_versions_mib, "worker.resident_versions_mib", 0,
          "MiB of sampler versions in memory; the least recently used versions beyond it go to "
          "disk until a sample needs them; 0: the memory that trainable adapters leave");
  set.Add(&options.cuda_graphs, "worker.cuda_graphs", true,
          "on a GPU: records decode passes as CUDA graphs and replays them");
  set.Add(&options.nonfinite_gradients, "worker.nonfinite_gradients", "skip",
          "action of an optim_step on a gradient that is not finite: skip drops the gradient and "
          "keeps the weights, apply takes the step, fail drops the gradient and fails the "
          "optim_step",
          {.choices = {"skip", "apply", "fail"}});
}

}  // namespace

WorkerOptions ParseWorkerOptionsOrExit(int argc, char** argv) {
  WorkerOptions options;
  OptionSet set("lathe-worker", "Trains and samples one base model for an engine.");
  AddEngineConnection(set, "worker", options.engine);
  AddGroup(set, options);
  AddModel(set, options);
  set.Add(&options.data_dir, "data.dir", "", "the data directory",
          {.flag = "data-dir", .required = true});
  set.Add(&options.run_dir, "data.run_dir", "", "folder of the sockets; default: DATA_DIR/run",
          {.flag = "run-dir"});
  AddStorageOptions(set, options.storage, /*has_cache=*/true);
  AddWork(set, options);
  set.Add(&options.metrics_listen, "metrics.worker_listen", "",
          "HOST:PORT of the page with metrics and health; default: no page",
          {.flag = "metrics-listen"});
  AddLogLevel(set, &options.log_level);
  set.SetCheck([&options] {
    WorkerOptions launched = options;
    launched.rank = std::max<int64_t>(launched.rank, 0);  // a launcher says the missing rank
    return Validate(launched);
  });
  set.ParseOrExit(argc, argv);
  options.config_path = set.config_path();
  return options;
}

absl::Status TakeLaunchPlace(WorkerOptions& options) {
  if (options.rank != -1) return absl::OkStatus();
  options.rank = 0;
  const int world = options.mesh.world();
  if (world <= 1) return absl::OkStatus();  // ignores what a launcher may say
  ASSIGN_OR_RETURN(const std::optional<LaunchPlace> place,
                   FindLaunchPlace([](const char* name) { return std::getenv(name); }));
  if (!place.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank is missing, and no launcher says it (LATHE_POD_INDEX, RANK, "
                        "LWS_WORKER_INDEX, JOB_COMPLETION_INDEX); want 0 to %d",
                        world - 1));
  }
  if (place->world != 0 && place->world != world) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the launcher (LATHE_POD_COUNT, WORLD_SIZE, LWS_GROUP_SIZE) has %d processes, %s has %d",
        place->world, options.mesh.ToString(), world));
  }
  options.rank = place->rank;
  if (place->has_local_rank) {
    RETURN_IF_ERROR(CheckVisibleDevices(static_cast<int>(place->local_rank) + 1, options.device));
    setenv(kVisibleDevices, VisibleDevice(static_cast<int>(place->local_rank)).c_str(), 1);
  }
  return absl::OkStatus();
}

absl::Status Validate(const WorkerOptions& options) {
  RETURN_IF_ERROR(Mesh::Create(options.mesh, ToInt(options.rank),
                               options.world == 0 ? options.mesh.world() : ToInt(options.world))
                      .status());
  RETURN_IF_ERROR(Check(options.engine));
  RETURN_IF_ERROR(CheckStorageOptions(options.storage));
  if (!(options.memory_fraction > 0 && options.memory_fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "memory_fraction is %g, want more than 0 and at most 1", options.memory_fraction));
  }
  if (!(options.sampling_share > 0 && options.sampling_share < 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "sampling_share is %g, want more than 0 and less than 1", options.sampling_share));
  }
  if (options.prefill_stall_ms < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prefill_stall_ms is %d, minimum is 0", options.prefill_stall_ms));
  }
  if (options.resident_versions_mib < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("resident_versions_mib is %d, minimum is 0",
                                                      options.resident_versions_mib));
  }
  if (options.host_memory_mib < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("host_memory_mib is %d, minimum is 0", options.host_memory_mib));
  }
  if (options.num_threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("threads is %d, minimum is 0", options.num_threads));
  }
  return absl::OkStatus();
}

std::string CheckpointRoot(const WorkerOptions& options) {
  const std::filesystem::path data_dir = options.data_dir;
  if (!options.storage.has_objects()) return (data_dir / "checkpoints").string();
  const std::string& cache_dir = options.storage.cache_dir;
  return cache_dir.empty() ? (data_dir / "cache").string() : cache_dir;
}

ExecutorOptions MakeExecutorOptions(const WorkerOptions& options) {
  const NamedPath model = SplitModel(options.model);
  ExecutorOptions executor;
  executor.model_name = model.name;
  executor.model_path = model.path;
  executor.tokenizer_id = TokenizerId(options.tokenizer_id, model);
  executor.checkpoint_root = CheckpointRoot(options);
  executor.device = options.device;
  executor.compute_dtype = options.compute_dtype;
  executor.num_threads = options.num_threads;
  executor.numerics = options.numerics;
  executor.memory_fraction = options.memory_fraction;
  executor.role = options.role;
  executor.host_memory_bytes = options.host_memory_mib << 20;
  executor.sampling_share = options.sampling_share;
  executor.prefill_stall = absl::Milliseconds(options.prefill_stall_ms);
  executor.prefix_cache = options.prefix_cache;
  executor.version_bytes = options.resident_versions_mib << 20;
  executor.decode_graphs = options.cuda_graphs;
  executor.nonfinite_gradients = ToPolicy(options.nonfinite_gradients);
  executor.mesh = options.mesh;
  executor.rank = static_cast<int>(options.rank);
  return executor;
}

absl::StatusOr<ExecutorStorage> OpenStorage(const WorkerOptions& options) {
  if (!options.storage.has_objects()) return ExecutorStorage();
  auto num_fetched = std::make_shared<std::atomic<int64_t>>(0);
  ASSIGN_OR_RETURN(
      std::shared_ptr<ObjectStore> objects,
      OpenObjectStore(options.storage, kFetchPatience, [num_fetched] { ++*num_fetched; }));
  ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> uploads,
                   OpenObjectStore(options.storage, kUploadPatience));
  auto fetches = std::make_shared<CheckpointObjects>(std::move(objects));
  auto saves = std::make_shared<CheckpointObjects>(std::move(uploads), fetches.get());
  return ExecutorStorage{
      .cache = std::make_shared<CheckpointCache>(
          std::move(fetches), std::filesystem::absolute(CheckpointRoot(options)).lexically_normal(),
          options.storage.cache_mib << 20, num_fetched, std::move(saves)),
      .num_fetched = std::move(num_fetched)};
}

CheckpointPlace FindCheckpointPlace(const WorkerOptions& options) {
  if (!options.storage.has_objects()) return {};
  auto objects = OpenObjectStore(options.storage, kOwnerPatience);
  if (!objects.ok()) return {};  // OpenStorage has said why
  CheckpointObjects checkpoints(*std::move(objects));
  const absl::StatusOr<std::string> owner = checkpoints.ReadOwner();
  if (!owner.ok()) {
    LogWarn("the owner of the object store is not known; the engine compares addresses only",
            {{"error", owner.status().message()}});
  }
  return {.address = checkpoints.Address(), .store_id = owner.value_or("")};
}

AttachOptions MakeAttachOptions(const WorkerOptions& options) {
  const EngineConnection& engine = options.engine;
  AttachOptions attach;
  attach.engine_addresses = engine.addresses;
  if (attach.engine_addresses.empty()) {
    attach.engine_addresses.push_back("unix:" + RunDir(options) + "/worker.sock");
  }
  attach.engine_tls = engine.tls;
  attach.secret_path =
      engine.secret_file.empty() ? RunDir(options) + "/secret" : engine.secret_file;
  return attach;
}

WorkerIdentity MakeIdentity(const WorkerOptions& options) {
  return {.group = options.group,
          .rank = options.rank,
          .world = options.mesh.world(),
          .process_id = RandomId(16),
          .base_model = SplitModel(options.model).name,
          .is_supervised = options.supervised,
          .mesh = options.mesh,
          .role = options.role};
}

}  // namespace lathe::worker
