#include "tests/bench/service/null_executor.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/time/clock.h"

namespace lathe::worker {
namespace {

constexpr int64_t kContextLength = 1 << 20;
constexpr int64_t kVocabSize = 151936;
constexpr int64_t kTokenBudget = 16384;  // per pass
constexpr int32_t kToken = 5;
// Results are whole numbers below this, which every number format holds exactly.
constexpr int64_t kModulus = 1'000'003;
// Reported size of a checkpoint. The manifest alone would be unrealistically small.
constexpr int64_t kCheckpointBytes = 1 << 20;

ModelInfo InfoOf(const std::string& base_model) {
  return {.name = base_model,
          .content_hash = "null",
          .arch = "null",
          .max_context_length = kContextLength,
          .vocab_size = kVocabSize,
          .tokenizer_id = base_model,
          .max_lora_rank = 512,
          .token_budget = kTokenBudget,
          .kv_cache_tokens = kContextLength,
          .lora_modules = DenseLoraModules()};
}

// Value of a sampled or trained token's logprob. Always one digit, so that answers keep their size.
float Logprob(int64_t digest) { return static_cast<float>(-1 - digest % 8); }

// Returns the model whose order the command belongs to; empty if none.
std::string ModelIdOf(const Command& command) {
  return std::visit(
      [](const auto& one) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, TrainBatch>) {
          return one.requests.front().model_id;
        } else if constexpr (requires { one.model_id; }) {
          return one.model_id;
        } else {
          return "";
        }
      },
      command);
}

int64_t NumTokens(const TrainRequest& request) {
  int64_t count = 0;
  for (const TrainDatum& datum : request.data) count += static_cast<int64_t>(datum.tokens.size());
  return count;
}

// Share of `request` in the gradient.
int64_t GradientOf(const TrainRequest& request) {
  int64_t sum = 0;
  for (const TrainDatum& datum : request.data) {
    sum = std::accumulate(datum.tokens.begin(), datum.tokens.end(), sum);
  }
  return sum % kModulus;
}

int64_t NumTokens(const TrainBatch& batch) {
  int64_t count = 0;
  for (const TrainRequest& request : batch.requests) count += NumTokens(request);
  return count;
}

// Writes a manifest into `dir` and returns its SHA-256.
absl::StatusOr<std::string> WriteState(const std::filesystem::path& dir, const ModelState& state,
                                       const LoraSpec& lora, const NullWeights& weights) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  const std::string manifest = nlohmann::json{{"applied_seq", state.applied_seq},
                                              {"window", state.window},
                                              {"digest", weights.digest},
                                              {"gradient", weights.gradient},
                                              {"rank", lora.rank},
                                              {"alpha", lora.alpha},
                                              {"target_modules", lora.target_modules}}
                                   .dump();
  std::ofstream file(dir / "manifest.json");
  if (!(file << manifest << std::flush)) {
    return absl::InternalError(absl::StrCat("cannot write '", dir.string(), "'"));
  }
  return Sha256Hex(manifest);
}

struct StoredModel {
  ModelState state;
  LoraSpec lora;
  NullWeights weights;
};

absl::StatusOr<StoredModel> ReadState(const std::filesystem::path& dir) {
  std::ifstream file(dir / "manifest.json");
  const auto manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (manifest.is_discarded()) {
    return absl::NotFoundError(absl::StrCat("no manifest in '", dir.string(), "'"));
  }
  return StoredModel{
      .state = {.applied_seq = manifest.at("applied_seq"), .window = manifest.at("window")},
      .lora = {.rank = manifest.at("rank"),
               .alpha = manifest.at("alpha"),
               .target_modules = manifest.at("target_modules")},
      .weights = {.digest = manifest.at("digest"), .gradient = manifest.at("gradient")}};
}

}  // namespace

NullExecutor::NullExecutor(Options options, ExecutorListener listener)
    : options_(std::move(options)), listener_(std::move(listener)) {
  if (options_.tokens_per_second == 0) return;
  thread_ = std::make_unique<NamedThread>("null-device", [this] { Run(); });
}

NullExecutor::~NullExecutor() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

absl::Status NullExecutor::Submit(Command command, std::string) {
  absl::MutexLock lock(&mu_);
  if (thread_ == nullptr) {
    Execute(command);
    return absl::OkStatus();
  }
  auto* const batch = std::get_if<TrainBatch>(&command);
  if (batch == nullptr) {
    commands_.push_back(std::move(command));
    return absl::OkStatus();
  }
  for (TrainRequest& request : batch->requests) {
    commands_.emplace_back(TrainBatch{{std::move(request)}});
  }
  return absl::OkStatus();
}

void NullExecutor::Reset(int64_t generation) {
  absl::MutexLock lock(&mu_);
  generation_ = generation;
  models_.clear();
  versions_.clear();
  commands_.clear();
}

ExecutorState NullExecutor::State() const {
  absl::MutexLock lock(&mu_);
  ExecutorState state;
  state.ready = true;
  state.model = InfoOf(options_.base_model);
  state.device = "null";
  for (const auto& [model_id, model] : models_) state.models.push_back(StateOf(model_id));
  for (const auto& [version_id, version] : versions_) {
    state.versions.push_back({version_id, version.seq_id});
  }
  state.counters = counters_;
  state.progress = num_executed_;
  state.is_busy = !commands_.empty();
  return state;
}

void NullExecutor::Run() {
  for (;;) {
    Command command;
    int64_t generation = 0;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &NullExecutor::HasWorkLocked));
      if (closed_) return;
      command = TakeNext();
      generation = generation_;
    }
    Wait(command);
    absl::MutexLock lock(&mu_);
    if (generation == generation_) Execute(command);
  }
}

Command NullExecutor::TakeNext() {
  std::set<std::string> models_with_work;
  for (auto it = commands_.begin(); it != commands_.end(); ++it) {
    const std::string model_id = ModelIdOf(*it);
    const bool is_first = model_id.empty() || models_with_work.insert(model_id).second;
    if (!is_first || std::holds_alternative<TrainBatch>(*it)) continue;
    Command command = std::move(*it);
    commands_.erase(it);
    return command;
  }
  return TakePass();
}

TrainBatch NullExecutor::TakePass() {
  TrainBatch pass;
  int64_t tokens = 0;
  std::set<std::string> closed;  // models with a command left for later
  std::deque<Command> rest;
  for (Command& command : commands_) {
    auto* const batch = std::get_if<TrainBatch>(&command);
    const std::string model_id = ModelIdOf(command);
    const int64_t cost = batch == nullptr ? 0 : NumTokens(*batch);
    const bool fits = pass.requests.empty() || tokens + cost <= kTokenBudget;
    if (batch != nullptr && fits && closed.count(model_id) == 0) {
      tokens += cost;
      pass.requests.push_back(std::move(batch->requests.front()));
      continue;
    }
    closed.insert(model_id);
    rest.push_back(std::move(command));
  }
  commands_ = std::move(rest);
  return pass;
}

void NullExecutor::Wait(const Command& command) const {
  const auto* const batch = std::get_if<TrainBatch>(&command);
  if (batch == nullptr) return;
  absl::SleepFor(absl::Seconds(static_cast<double>(NumTokens(*batch)) /
                               static_cast<double>(options_.tokens_per_second)));
}

void NullExecutor::Execute(Command& command) {
  ++num_executed_;
  std::visit([this](const auto& one) ABSL_NO_THREAD_SAFETY_ANALYSIS { Do(one); }, command);
}

void NullExecutor::Do(const TrainBatch& batch) {
  ++counters_.train_passes;
  for (const TrainRequest& request : batch.requests) Do(request);
}

void NullExecutor::Do(const TrainRequest& request) {
  Model* const model = Find(request.request_id, request.model_id);
  if (model == nullptr) return;
  counters_.train_tokens += NumTokens(request);
  NullWeights& weights = model->weights;
  const int64_t gradient = GradientOf(request);
  if (!request.forward_only) {
    model->window.insert(request.seq_id);
    weights.gradient = (weights.gradient + gradient) % kModulus;
  }
  TrainDone done{.request_id = request.request_id};
  for (const TrainDatum& datum : request.data) {
    done.output.logprobs.emplace_back(datum.targets.size(), Logprob(weights.digest));
  }
  const int64_t loss = (weights.digest + gradient) % kModulus;
  done.output.metrics = {{"loss:sum", static_cast<double>(loss)}};
  Emit(std::move(done), request.model_id);
}

void NullExecutor::Do(const CreateAdapter& command) {
  models_[command.model_id] = {.lora = command.lora};
  Emit(OpDone{.request_id = command.request_id, .lora = command.lora}, command.model_id);
}

void NullExecutor::Do(const LoadAdapter& command) {
  Restore(command.request_id, command.model_id, command.dir, command.seq_id,
          /*with_window=*/false);
}

void NullExecutor::Do(const RestoreAdapter& command) {
  Restore(command.request_id, command.model_id, command.dir, /*applied_seq=*/-1,
          /*with_window=*/true);
}

void NullExecutor::Restore(const std::string& request_id, const std::string& model_id,
                           const std::string& dir, int64_t applied_seq, bool with_window) {
  const absl::StatusOr<StoredModel> stored = ReadState(options_.checkpoint_root / dir);
  if (!stored.ok()) return Emit(OpFailed{request_id, stored.status()});
  const ModelState& state = stored->state;
  Model& model = models_[model_id];
  model.lora = stored->lora;
  model.applied_seq = applied_seq < 0 ? state.applied_seq : applied_seq;
  model.window.clear();
  model.weights = stored->weights;
  if (with_window) {
    model.window.insert(state.window.begin(), state.window.end());
  } else {
    model.weights.gradient = 0;
  }
  Emit(OpDone{.request_id = request_id, .lora = model.lora}, model_id);
}

void NullExecutor::Do(const DropAdapter& command) {
  models_.erase(command.model_id);
  if (!command.request_id.empty()) Emit(OpDone{.request_id = command.request_id});
}

void NullExecutor::Do(const OptimStep& command) {
  Model* const model = Find(command.request_id, command.model_id);
  if (model == nullptr) return;
  const bool is_expected = model->applied_seq == command.expected_applied_seq &&
                           std::ranges::equal(model->window, command.window);
  if (!is_expected) {
    return Emit(OpFailed{command.request_id,
                         absl::InternalError(absl::StrCat(
                             "optim_step ", command.seq_id, " expects applied_seq ",
                             command.expected_applied_seq, ", held are ", model->applied_seq,
                             " and a window of ", model->window.size()))},
                command.model_id);
  }
  ++counters_.optim_steps;
  model->applied_seq = command.seq_id;
  model->window.clear();
  NullWeights& weights = model->weights;
  const auto gradient = static_cast<double>(std::exchange(weights.gradient, 0));
  weights.digest = (31 * weights.digest + static_cast<int64_t>(gradient) + 1) % kModulus;
  Emit(StepDone{.request_id = command.request_id, .metrics = {{"grad_norm", gradient}}},
       command.model_id);
}

void NullExecutor::Do(const ClearGradient& command) {
  const auto model = models_.find(command.model_id);
  if (model == models_.end()) return;
  model->second.window.clear();
  model->second.weights.gradient = 0;
}

void NullExecutor::Do(const SaveCheckpoint& command) {
  const Model* const model = Find(command.request_id, command.model_id);
  if (model == nullptr) return;
  const auto sha256 = WriteState(options_.checkpoint_root / command.dir, StateOf(command.model_id),
                                 model->lora, model->weights);
  if (!sha256.ok()) return Emit(OpFailed{command.request_id, sha256.status()});
  Emit(SaveDone{.request_id = command.request_id,
                .size_bytes = kCheckpointBytes,
                .manifest_sha256 = *sha256},
       command.model_id);
}

void NullExecutor::Do(const PublishVersion& command) {
  const Model* const model = Find(command.request_id, command.model_id);
  if (model == nullptr) return;
  versions_[command.version_id] = {command.seq_id, model->weights.digest};
  Emit(OpDone{.request_id = command.request_id, .version_bytes = kCheckpointBytes},
       command.model_id);
}

void NullExecutor::Do(const LoadVersion& command) {
  const absl::StatusOr<StoredModel> stored = ReadState(options_.checkpoint_root / command.dir);
  versions_[command.version_id] = {command.inflight_seq_id,
                                   stored.ok() ? stored->weights.digest : 0};
  Emit(VersionLoaded{.version_id = command.version_id, .inflight_seq_id = command.inflight_seq_id});
}

// Never requested: this worker has announced no address for reading versions.
void NullExecutor::Do(const ServeVersion& command) {
  Emit(VersionServed{.version_id = command.version_id,
                     .reader = command.reader,
                     .status = absl::UnimplementedError("a null worker serves no versions")});
}

void NullExecutor::Do(const SaveVersion& command) {
  const Version& version = versions_[command.version_id];
  const auto sha256 = WriteState(options_.checkpoint_root / command.dir, ModelState{}, LoraSpec{},
                                 {.digest = version.digest});
  Emit(VersionSaved{.version_id = command.version_id,
                    .dir = command.dir,
                    .seq_id = version.seq_id,
                    .size_bytes = kCheckpointBytes,
                    .manifest_sha256 = sha256.value_or(""),
                    .status = sha256.status()});
}

void NullExecutor::Do(const DropVersion& command) { versions_.erase(command.version_id); }

void NullExecutor::Do(const SampleRequest& request) {
  SampleDone done{.request_id = request.request_id};
  const auto num_tokens = static_cast<size_t>(request.params.max_tokens);
  const auto version = versions_.find(request.version_id);
  const int64_t digest = version == versions_.end() ? 0 : version->second.digest;
  const auto token = static_cast<int32_t>(kToken + digest % (kVocabSize - kToken));
  for (int64_t i = 0; i < request.num_samples; ++i) {
    done.output.sequences.push_back({.tokens = std::vector<int32_t>(num_tokens, token),
                                     .logprobs = std::vector<float>(num_tokens, Logprob(digest))});
  }
  Emit(std::move(done));
}

void NullExecutor::Do(const Snapshot& command) {
  SnapshotDone done{.snapshot_id = command.snapshot_id,
                    .state = {.model_id = command.model_id},
                    .size_bytes = kCheckpointBytes};
  if (models_.contains(command.model_id)) {
    const absl::Time began = SteadyNow();
    done.state = StateOf(command.model_id);
    const auto sha256 =
        WriteState(options_.checkpoint_root / command.dir, done.state,
                   models_.at(command.model_id).lora, models_.at(command.model_id).weights);
    done.manifest_sha256 = sha256.value_or("");
    done.status = sha256.status();
    done.write_time = SteadyNow() - began;
  } else {
    done.status = absl::NotFoundError(absl::StrCat("model ", command.model_id, " is not here"));
  }
  Emit(std::move(done));
}

void NullExecutor::Emit(Report report, const std::string& model_id) {
  ReportEvent event{.generation = generation_, .report = std::move(report)};
  if (models_.contains(model_id)) event.model = StateOf(model_id);
  listener_.on_report(std::move(event));
}

NullExecutor::Model* NullExecutor::Find(const std::string& request_id,
                                        const std::string& model_id) {
  const auto model = models_.find(model_id);
  if (model != models_.end()) return &model->second;
  Emit(OpFailed{request_id,
                absl::NotFoundError(absl::StrCat("model ", model_id, " is not on this worker"))});
  return nullptr;
}

ModelState NullExecutor::StateOf(const std::string& model_id) const {
  const Model& model = models_.at(model_id);
  return {model_id, model.applied_seq, {model.window.begin(), model.window.end()}};
}

}  // namespace lathe::worker
