#include "tests/bench/sampling/executor_bench.h"

#include <stdlib.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/executor/saves/checkpoint_writer.h"
#include "services/worker/executor/versions/recovery_thread.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

constexpr char kVersion[] = "version";
constexpr int64_t kWarmPasses = 6;

absl::Time Now() { return absl::Now(); }
double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

std::vector<int32_t> Tokens(const Model& model, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((20 + 7919 * i) % model.spec().vocab_size));
  }
  return tokens;
}

SampleRequest MakeSample(const Model& model, std::string id, std::string version_id,
                         int64_t max_tokens) {
  SampleRequest request;
  request.request_id = std::move(id);
  request.version_id = std::move(version_id);
  request.prompt = Tokens(model, 16);
  request.params = {.max_tokens = max_tokens, .seed = 1, .ignore_eos = true};
  request.streamed = true;
  return request;
}

TrainRequest MakeTrain(const Model& model, int64_t seq_id, int64_t num_tokens) {
  TrainDatum datum;
  datum.tokens = Tokens(model, num_tokens);
  datum.targets.assign(datum.tokens.begin(), datum.tokens.end());
  datum.weights.assign(datum.tokens.size(), 1.0f);
  TrainRequest request;
  request.request_id = "train" + std::to_string(seq_id);
  request.model_id = "m";
  request.seq_id = seq_id;
  request.loss = DefaultLoss("cross_entropy");
  request.data = {std::move(datum)};
  return request;
}

// Collects the gaps between the tokens of one request.
class TokenGaps {
 public:
  explicit TokenGaps(std::string request_id) : request_id_(std::move(request_id)) {}

  void Record(const ReportEvent& event) {
    const auto* const progress = std::get_if<SampleProgress>(&event.report);
    if (progress == nullptr) return;
    const bool is_in_pass =
        std::any_of(progress->tokens.begin(), progress->tokens.end(),
                    [&](const SampledToken& token) { return token.request_id == request_id_; });
    if (!is_in_pass) return;
    const absl::Time now = Now();
    if (last_ != absl::InfinitePast()) gaps_.push_back(now - last_);
    last_ = now;
  }

  void Clear() { gaps_.clear(); }
  size_t size() const { return gaps_.size(); }
  double PerSecond() const {
    absl::Duration sum;
    for (const absl::Duration gap : gaps_) sum += gap;
    return gaps_.empty() ? 0 : static_cast<double>(gaps_.size()) / Seconds(sum);
  }
  absl::Duration Longest() const {
    return gaps_.empty() ? absl::ZeroDuration() : *std::max_element(gaps_.begin(), gaps_.end());
  }
  absl::Duration Median() {
    if (gaps_.empty()) return absl::ZeroDuration();
    std::sort(gaps_.begin(), gaps_.end());
    return gaps_[gaps_.size() / 2];
  }

 private:
  const std::string request_id_;
  absl::Time last_ = absl::InfinitePast();
  std::vector<absl::Duration> gaps_;
};

bool IsSampleDone(const ReportEvent& event, const std::string& request_id) {
  if (const auto* const failed = std::get_if<OpFailed>(&event.report)) {
    throw std::runtime_error(std::string(failed->status.message()));
  }
  const auto* const done = std::get_if<SampleDone>(&event.report);
  return done != nullptr && done->request_id == request_id;
}

std::filesystem::path MakeTempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "lathe-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  return name;
}

}  // namespace

struct ExecutorBench::Parts {
  explicit Parts(const Model& base)
      : model(base), dir(MakeTempDir()), store(dir, base.part(), "base", "hash") {}
  ~Parts() {
    done.Close();
    recovered.Close();
    core.reset();
    std::error_code ignored;
    std::filesystem::remove_all(dir, ignored);
  }

  const Model& model;
  const std::filesystem::path dir;
  CheckpointStore store;
  CheckpointWriter writer{store, [](ReportEvent) {}, [](SaveWritten) {}};
  std::unique_ptr<DeviceClock> device_clock = MakeDeviceClock(model.device());
  BoundedQueue<VersionJobDone> done{16};
  VersionFiles files{store, model.device()};
  std::unique_ptr<ExecutorCore> core;
  VersionThread versions{files, [this](VersionJobDone one) { done.Push(std::move(one)); }};
  RecoveryFiles recovery_files{store};
  BoundedQueue<RecoveryJobDone> recovered{16};
  RecoveryThread recovery{recovery_files,
                          [this](RecoveryJobDone one) { recovered.Push(std::move(one)); }};
};

ExecutorBench::ExecutorBench(const Model& model, int64_t kv_cache_bytes)
    : parts_(std::make_unique<Parts>(model)), kv_cache_bytes_(kv_cache_bytes) {
  MakeCore(/*sampling_share=*/0.5);
}

ExecutorBench::~ExecutorBench() = default;

void ExecutorBench::MakeCore(double sampling_share) {
  parts_->core.reset();
  CoreOptions options;
  options.sampling.kv_cache_bytes = kv_cache_bytes_;
  options.sampling_share = sampling_share;
  const ExecutorParts parts{.model = parts_->model,
                            .tokenizer = nullptr,
                            .store = parts_->store,
                            .writer = parts_->writer,
                            .version_jobs = parts_->versions,
                            .recovery_jobs = parts_->recovery,
                            .device_clock = *parts_->device_clock};
  parts_->core = std::make_unique<ExecutorCore>(parts, options, /*generation=*/++num_requests_);
}

// Runs one unit of work. Without work, waits up to 10 s for a version job.
void ExecutorBench::Step(const std::function<void()>& on_yield) {
  while (auto done = parts_->done.TryPop()) parts_->core->Apply(*std::move(done));
  if (parts_->core->RunUnit(on_yield)) return;
  if (auto done = parts_->done.PopFor(absl::Seconds(10))) parts_->core->Apply(*std::move(done));
}

void ExecutorBench::SaveVersion(int64_t rank) {
  if (saved_rank_ == rank) return;
  Adapter adapter(parts_->model.part(),
                  {.rank = rank, .target_modules = LoraModulesOf(true, true, false)},
                  parts_->model.device());
  adapter.MutableParameters().add_(at::randn_like(adapter.parameters()).mul_(1e-3));
  const auto saved = parts_->store.SaveSampler(kVersion, "m", *adapter.Publish(), 1, "{}");
  if (!saved.ok()) throw std::runtime_error(std::string(saved.status().message()));
  saved_rank_ = rank;
}

json ExecutorBench::Cold(const json& command) {
  SaveVersion(command.value("rank", int64_t{8}));
  ExecutorCore& core = *parts_->core;
  const std::string number = std::to_string(++num_requests_);
  const std::string busy_id = "busy" + number;
  const bool busy = command.at("busy");
  TokenGaps gaps(busy_id);
  bool is_done = false;
  const auto run = [&](const std::string& until) {
    Step();
    for (const ReportEvent& event : core.TakeReports()) {
      gaps.Record(event);
      is_done |= !until.empty() && IsSampleDone(event, until);
    }
  };

  core.Apply(DropVersion{kVersion});
  if (command.at("resident").get<bool>()) {
    core.Apply(LoadVersion{kVersion, kVersion});
    core.Apply(MakeSample(parts_->model, "first" + number, kVersion, 1));
    while (!is_done) run("first" + number);
  }
  if (busy) core.Apply(MakeSample(parts_->model, busy_id, "", 4096));
  while (busy && gaps.size() < kWarmPasses) run("");
  gaps.Clear();

  const absl::Duration loaded_before = core.counters().version_load_time;
  is_done = false;
  const absl::Time began = Now();
  core.Apply(LoadVersion{kVersion, kVersion});
  core.Apply(MakeSample(parts_->model, "measured" + number, kVersion, 1));
  while (!is_done) run("measured" + number);
  const double seconds = Seconds(Now() - began);
  const size_t passes = gaps.size();
  while (busy && gaps.size() < passes + 2) run("");
  if (busy) core.Apply(Cancel{busy_id});
  core.TakeReports();
  return {{"seconds", seconds},
          {"load_seconds", Seconds(core.counters().version_load_time - loaded_before)},
          {"longest_pass_seconds", Seconds(gaps.Longest())},
          {"pass_seconds", Seconds(gaps.Median())}};
}

json ExecutorBench::Share(const json& command) {
  const double share = command.at("share");
  MakeCore(share);
  ExecutorCore& core = *parts_->core;
  const int64_t num_tokens = command.value("tokens", int64_t{256});
  core.Apply(CreateAdapter{"create",
                           "m",
                           {.rank = command.value("rank", int64_t{8}),
                            .target_modules = LoraModulesOf(true, true, false)}});
  Step();
  const auto num_sequences = command.value("sequences", int64_t{4});
  for (int64_t i = 0; i < num_sequences; ++i) {
    core.Apply(MakeSample(parts_->model, "s" + std::to_string(i), "", 4096));
  }
  int64_t num_sent = 0;
  int64_t num_trained = 0;
  TokenGaps gaps("s0");
  absl::Time last_yield = Now();
  int64_t num_passes_then = 0;
  absl::Duration longest_step;
  const auto collect = [&] {
    for (const ReportEvent& event : core.TakeReports()) {
      gaps.Record(event);
      IsSampleDone(event, "");
      num_trained += std::holds_alternative<TrainDone>(event.report) ? 1 : 0;
    }
    // Keep one request running and one queued, as the engine does.
    while (num_sent < num_trained + 2) {
      core.Apply(TrainBatch{{MakeTrain(parts_->model, ++num_sent, num_tokens)}});
    }
  };
  // Called at each yield point, and after each sampling pass that runs there.
  const auto on_yield = [&] {
    const int64_t num_passes = core.counters().decode_passes;
    if (num_passes == num_passes_then) longest_step = std::max(longest_step, Now() - last_yield);
    collect();
    num_passes_then = num_passes;
    last_yield = Now();
  };
  while (gaps.size() < kWarmPasses) {
    Step();
    collect();
  }
  const absl::Duration run = absl::Seconds(command.value("run_seconds", 5.0));
  const ExecutorCounters before = core.counters();
  const absl::Time began = Now();
  gaps.Clear();
  while (Now() - began < run) {
    last_yield = Now();
    num_passes_then = core.counters().decode_passes;
    Step(on_yield);
    on_yield();
  }
  const ExecutorCounters after = core.counters();
  const double sampling = Seconds(after.sampling_time - before.sampling_time);
  const double training = Seconds(after.training_time - before.training_time);
  const int64_t num_passes = after.decode_passes - before.decode_passes;
  const json answer = {{"seconds", Seconds(Now() - began)},
                       {"share", sampling / (sampling + training)},
                       {"sampling_seconds", sampling},
                       {"training_seconds", training},
                       {"trained", num_trained},
                       {"decode_passes", num_passes},
                       {"pass_seconds", sampling / static_cast<double>(num_passes)},
                       {"longest_gap_seconds", Seconds(gaps.Longest())},
                       {"gap_seconds", Seconds(gaps.Median())},
                       {"longest_step_seconds", Seconds(longest_step)}};
  MakeCore(/*sampling_share=*/0.5);
  return answer;
}

void ExecutorBench::MakeModelWithWindow(int64_t rank) {
  ExecutorCore& core = *parts_->core;
  core.Apply(CreateAdapter{"create", "m", {.rank = rank}});
  core.Apply(TrainBatch{{MakeTrain(parts_->model, 1, 32)}});
  while (core.RunUnit()) {
  }
  core.TakeReports();
}

json ExecutorBench::Snapshots(const json& command) {
  MakeCore(/*sampling_share=*/0.5);
  ExecutorCore& core = *parts_->core;
  MakeModelWithWindow(command.value("rank", int64_t{32}));
  const auto num_sequences = command.value("sequences", int64_t{1});
  for (int64_t i = 0; i < num_sequences; ++i) {
    core.Apply(MakeSample(parts_->model, "s" + std::to_string(i), "", 8192));
  }
  TokenGaps gaps("s0");
  std::vector<SnapshotDone> snapshots;
  absl::Duration longest_staging;
  const auto collect = [&] {
    for (const ReportEvent& event : core.TakeReports()) {
      gaps.Record(event);
      if (const auto* done = std::get_if<SnapshotDone>(&event.report)) snapshots.push_back(*done);
    }
  };
  const auto step = [&] {
    const absl::Time began = Now();
    const absl::Duration training_before = core.counters().training_time;
    const bool worked = core.RunUnit(collect);
    if (core.counters().training_time > training_before) {
      longest_staging = std::max(longest_staging, Now() - began);
    }
    const absl::Duration wait = worked ? absl::ZeroDuration() : absl::Seconds(1);
    if (auto done = parts_->recovered.PopFor(wait)) core.Apply(*std::move(done));
    collect();
  };
  while (num_sequences > 0 && gaps.size() < kWarmPasses) step();
  gaps.Clear();
  const absl::Duration run = absl::Seconds(command.value("run_seconds", 5.0));
  for (const absl::Time began = Now(); num_sequences > 0 && Now() - began < run;) step();
  const json alone = {{"gap_seconds", Seconds(gaps.Median())},
                      {"longest_gap_seconds", Seconds(gaps.Longest())},
                      {"tokens_per_second", gaps.PerSecond()}};
  gaps.Clear();
  absl::Duration written;
  const absl::Time began = Now();
  while (Now() - began < run) {
    const absl::Time asked = Now();
    const size_t before = snapshots.size();
    core.Apply(Snapshot{"s", "m", "snapshot", "{}"});
    while (snapshots.size() == before) step();
    written += Now() - asked;
    if (!snapshots.back().status.ok()) {
      throw std::runtime_error(std::string(snapshots.back().status.message()));
    }
  }
  absl::Duration busy;
  for (const SnapshotDone& done : snapshots) busy += done.write_time;
  const auto count = static_cast<double>(snapshots.size());
  json answer = {{"alone", alone},
                 {"gap_seconds", Seconds(gaps.Median())},
                 {"longest_gap_seconds", Seconds(gaps.Longest())},
                 {"tokens_per_second", gaps.PerSecond()},
                 {"snapshots", snapshots.size()},
                 {"snapshot_bytes", snapshots.back().size_bytes},
                 {"staging_seconds", Seconds(longest_staging)},
                 {"busy_seconds", Seconds(busy) / count},
                 {"written_seconds", Seconds(written) / count}};
  MakeCore(/*sampling_share=*/0.5);
  return answer;
}

}  // namespace lathe::worker
