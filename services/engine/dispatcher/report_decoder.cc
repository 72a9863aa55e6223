#include "services/engine/dispatcher/report_decoder.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/rpc/status.h"
#include "services/engine/core/state/lora_proto.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

HeldModel ToHeld(const v1::ModelState& state) {
  return {.model_id = state.model_id(),
          .applied_seq = state.applied_seq(),
          .window = {state.window().begin(), state.window().end()}};
}

constexpr int64_t kMaxWorld = 4096;
constexpr int64_t kMaxPort = 65535;

const char* RoleName(v1::GroupRole role) {
  if (role == v1::GROUP_ROLE_TRAIN) return "train";
  return role == v1::GROUP_ROLE_SAMPLE ? "sample" : "both";
}

LoraFamily ToFamily(v1::LoraFamily family) {
  if (family == v1::LORA_FAMILY_MLP) return LoraFamily::kMlp;
  return family == v1::LORA_FAMILY_UNEMBEDDING ? LoraFamily::kUnembedding : LoraFamily::kAttention;
}

std::vector<LoraModule> ToModules(const v1::ModelInfo& model) {
  std::vector<LoraModule> modules;
  for (const v1::LoraModule& module : model.lora_modules()) {
    modules.push_back({module.name(), ToFamily(module.family())});
  }
  return modules;
}

}  // namespace

ReadyModel ToReady(const v1::ModelInfo& model) {
  return {.row = {.name = model.name(),
                  .content_hash = model.content_hash(),
                  .arch = model.arch(),
                  .tokenizer_id = model.tokenizer_id(),
                  .max_context_length = model.max_context_length(),
                  .vocab_size = model.vocab_size(),
                  .max_lora_rank = model.max_lora_rank(),
                  .token_budget = model.token_budget(),
                  .lora_modules = ToModules(model)},
          .kv_cache_tokens = model.kv_cache_tokens(),
          .max_running_samples = model.max_running_samples()};
}

GroupRole ToRole(v1::GroupRole role) {
  if (role == v1::GROUP_ROLE_TRAIN) return GroupRole::kTrain;
  return role == v1::GROUP_ROLE_SAMPLE ? GroupRole::kSample : GroupRole::kBoth;
}

MeshShape ToMesh(const v1::Hello& hello) {
  if (!hello.has_mesh()) return {};
  return {.dp = hello.mesh().dp(), .fsdp = hello.mesh().fsdp(), .tp = hello.mesh().tp()};
}

WorkerAttached ToEvent(const v1::Hello& hello) {
  WorkerAttached event;
  event.group = hello.group();
  event.process_id = hello.process_id();
  event.base_model = hello.base_model();
  event.epoch = hello.epoch();
  event.term = hello.term();
  for (const v1::ModelState& state : hello.models()) event.models.push_back(ToHeld(state));
  for (const v1::HeldVersion& version : hello.versions()) {
    event.versions.push_back({.version_id = version.version_id(),
                              .seq_id = version.seq_id(),
                              .is_loading = version.is_loading()});
  }
  event.running_request_ids = {hello.running_request_ids().begin(),
                               hello.running_request_ids().end()};
  if (hello.has_ready()) event.ready = ToReady(hello.ready().model());
  event.pid = hello.pid();
  event.is_supervised = hello.is_supervised();
  event.rank = hello.rank();
  event.mesh = ToMesh(hello);
  event.session = hello.session();
  event.address = hello.address();
  event.port = hello.port();
  event.role = ToRole(hello.role());
  event.serves_versions = !hello.version_address().address().empty();
  return event;
}

std::string WhyOtherPlace(const CheckpointPlace& own, const v1::Hello& hello) {
  const v1::CheckpointPlace& place = hello.checkpoint_place();
  const bool is_same =
      place.store_id().empty() ? place.address() == own.address : place.store_id() == own.store_id;
  if (is_same) return "";
  const auto describe = [](const std::string& address, const std::string& store_id) {
    if (address.empty()) return std::string("in its data directory");
    const std::string id = store_id.empty() ? "" : absl::StrFormat(" (store %s)", store_id);
    return absl::StrFormat("in %s%s", address, id);
  };
  return absl::StrFormat(
      "the engine keeps checkpoints %s, the worker keeps them %s: give both the same "
      "storage.files, "
      "and start the one with the wrong value again",
      describe(own.address, own.store_id), describe(place.address(), place.store_id()));
}

WorkerDone ToEvent(const std::string& group, int64_t epoch, const v1::OperationDone& done,
                   std::string result_id) {
  WorkerDone event;
  event.group = group;
  event.epoch = epoch;
  event.request_id = done.request_id();
  if (done.result().has_error()) {
    event.error = ToErrorInfo(FromErrorProto(done.result().error()));
  }
  event.result_id = std::move(result_id);
  event.size_bytes = done.size_bytes();
  event.manifest_sha256 = done.manifest_sha256();
  if (done.has_lora()) event.lora = ToLora(done.lora());
  event.version_bytes = done.version_bytes();
  if (done.has_model()) event.model = ToHeld(done.model());
  constexpr int64_t kTokenBytes = 4;
  for (const v1::SampledSequence& sequence : done.result().sample().sequences()) {
    event.sampled_tokens += static_cast<int64_t>(sequence.tokens().size()) / kTokenBytes;
  }
  event.result_bytes = static_cast<int64_t>(done.result().ByteSizeLong());
  event.cached_prompt_tokens = done.result().sample().prompt_cache_hit_tokens();
  return event;
}

v1::GroupStatus ToGroupStatus(const v1::Hello& hello) {
  const MeshShape mesh = ToMesh(hello);
  v1::GroupStatus status;
  status.set_group(hello.group());
  status.set_base_model(hello.base_model());
  status.set_role(RoleName(hello.role()));
  status.set_device(hello.device());
  status.set_dp(mesh.dp);
  status.set_fsdp(mesh.fsdp);
  status.set_tp(mesh.tp);
  status.mutable_counters();  // zeros until the first heartbeat
  return status;
}

v1::RankStatus ToRankStatus(const v1::Hello& hello) {
  v1::RankStatus status;
  status.set_rank(hello.rank());
  status.set_device(hello.device());
  status.set_pid(hello.pid());
  return status;
}

std::vector<StreamedToken> ToTokens(const v1::SampleProgress& progress) {
  std::vector<StreamedToken> tokens;
  for (const v1::SampledToken& token : progress.tokens()) {
    tokens.push_back({.request_id = token.request_id(),
                      .sample_index = token.sample_index(),
                      .token_index = token.token_index(),
                      .token = token.token(),
                      .logprob = token.logprob(),
                      .finished = token.finished(),
                      .stopped = token.stopped()});
  }
  return tokens;
}

WorkerSampleProgress ToEvent(const std::string& group, int64_t epoch,
                             const v1::SampleProgress& progress) {
  WorkerSampleProgress event{.group = group, .epoch = epoch, .ended = {}};
  for (const v1::EndedSequences& ended : progress.ended()) {
    event.ended.push_back({.request_id = ended.request_id(), .num_ended = ended.num_ended()});
  }
  return event;
}

WorkerStarted ToEvent(const std::string& group, int64_t epoch, const v1::Started& started) {
  return {.group = group,
          .epoch = epoch,
          .request_ids = {started.request_ids().begin(), started.request_ids().end()}};
}

WorkerVersionLoaded ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionLoaded& loaded) {
  return {.group = group,
          .epoch = epoch,
          .version_id = loaded.version_id(),
          .inflight_seq_id = loaded.inflight_seq_id()};
}

WorkerVersionServed ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionServed& served) {
  WorkerVersionServed event;
  event.group = group;
  event.epoch = epoch;
  event.version_id = served.version_id();
  event.reader = served.reader();
  event.seq_id = served.seq_id();
  if (served.has_error()) event.error = ToErrorInfo(FromErrorProto(served.error()));
  return event;
}

WorkerVersionFailed ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionFailed& failed) {
  return {.group = group,
          .epoch = epoch,
          .version_id = failed.version_id(),
          .error = ToErrorInfo(FromErrorProto(failed.error()))};
}

WorkerSnapshotDone ToEvent(const std::string& group, int64_t epoch, const v1::SnapshotDone& done) {
  WorkerSnapshotDone event;
  event.group = group;
  event.epoch = epoch;
  event.snapshot_id = done.snapshot_id();
  if (done.has_error()) event.error = ToErrorInfo(FromErrorProto(done.error()));
  event.model = ToHeld(done.model());
  event.size_bytes = done.size_bytes();
  event.manifest_sha256 = done.manifest_sha256();
  event.write_time = done.write_nanoseconds();
  return event;
}

WorkerVersionSaved ToEvent(const std::string& group, int64_t epoch, const v1::VersionSaved& saved) {
  WorkerVersionSaved event;
  event.group = group;
  event.epoch = epoch;
  event.version_id = saved.version_id();
  event.dir = std::filesystem::path(saved.dir()).filename();  // of the path in the command
  if (saved.has_error()) event.error = ToErrorInfo(FromErrorProto(saved.error()));
  event.seq_id = saved.seq_id();
  event.size_bytes = saved.size_bytes();
  event.manifest_sha256 = saved.manifest_sha256();
  return event;
}

std::string Describe(const MeshShape& mesh) {
  return absl::StrFormat("dp %d x fsdp %d x tp %d", mesh.dp, mesh.fsdp, mesh.tp);
}

absl::Status CheckMesh(const v1::Hello& hello) {
  const MeshShape mesh = ToMesh(hello);
  for (const auto& [axis, size] :
       {std::pair("dp", mesh.dp), std::pair("fsdp", mesh.fsdp), std::pair("tp", mesh.tp)}) {
    if (size >= 1 && size <= kMaxWorld) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is %d, want 1 to %d", axis, size, kMaxWorld));
  }
  // Each axis is bounded, so the product does not overflow.
  if (hello.world() != mesh.world() || hello.world() > kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrFormat("world is %d, mesh %s has %d ranks, limit is %d", hello.world(),
                        Describe(mesh), mesh.world(), kMaxWorld));
  }
  if (hello.rank() < 0 || hello.rank() >= hello.world()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank is %d, want 0 to %d", hello.rank(), hello.world() - 1));
  }
  const bool has_peers = hello.rank() == 0 && hello.world() > 1;
  if (has_peers && (hello.address().empty() || hello.port() < 1 || hello.port() > kMaxPort)) {
    return absl::InvalidArgumentError("rank 0 reports no address and port for its peers");
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
