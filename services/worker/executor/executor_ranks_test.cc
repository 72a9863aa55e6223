// Tests a group of executors, connected over the loopback address, against a single one.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/testing/test_group.h"
#include "services/worker/testing/test_model_folder.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

// A model folder with random weights.
class ModelFolder {
 public:
  ModelFolder() {
    at::manual_seed(5);
    std::map<std::string, at::Tensor> tensors = SmallTensors();
    for (auto& [name, tensor] : tensors) tensor = at::randn_like(tensor) * 0.5;
    WriteModelFolder(dir_.path(), tensors);
  }
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  const TempDir dir_;
};

// Sends a random program to a group. Collects the outcomes that do not depend on which requests
// shared a pass.
class Program {
 public:
  explicit Program(uint32_t seed) : random_(seed) {}

  // Runs the same program for any group: the requests and their order depend on the seed only.
  std::map<std::string, std::vector<double>> Run(Group& group) {
    for (const std::string model_id : {"a", "b"}) {
      group.Send(CreateAdapter{model_id + ":create", model_id, {.rank = 2, .seed = 7}});
    }
    std::vector<std::string> ids;
    for (int i = 0; i < 60; ++i) {
      ids.push_back(SendOne(group, Below(2) == 0 ? "a" : "b"));
      // Waits now and then, so that some versions are unused for a while.
      if (Below(3) == 0) group.Await(ids.back());
    }
    std::map<std::string, std::vector<double>> outcomes;
    for (const std::string& id : ids) outcomes[id] = NumbersOf(group.Await(id));
    return outcomes;
  }

 private:
  struct Ledger {
    int64_t seq = 0, applied_seq = 0;
    std::vector<int64_t> window;
    std::vector<std::string> versions;
  };

  uint32_t Below(uint32_t limit) { return random_() % limit; }

  std::string SendOne(Group& group, const std::string& model_id) {
    Ledger& model = ledgers_[model_id];
    const int64_t seq = ++model.seq;
    const std::string id = model_id + ":" + std::to_string(seq);
    switch (Below(9)) {
      case 0:
      case 1:
        group.Send(OptimStep{.request_id = id,
                             .model_id = model_id,
                             .seq_id = seq,
                             .expected_applied_seq = model.applied_seq,
                             .window = std::exchange(model.window, {}),
                             .adam = {.learning_rate = 0.01}});
        model.applied_seq = seq;
        return id;
      case 2:
        group.Send(PublishVersion{id, model_id, seq, "v" + id});
        model.versions.push_back("v" + id);
        return id;
      case 3:
        if (model.versions.empty()) break;
        group.Send(SaveVersion{
            .version_id = model.versions.back(), .dir = "version-" + id, .manifest_json = "{}"});
        saved_ = "saved:" + model.versions.back();
        model.versions.pop_back();
        return saved_;
      case 4:
        group.Send(Snapshot{id, model_id, "snapshot-" + id, "{}"});
        return id;
      case 5:
        group.Send(SaveCheckpoint{.request_id = id,
                                  .model_id = model_id,
                                  .seq_id = seq,
                                  .dir = "checkpoint-" + id,
                                  .manifest_json = "{}"});
        return id;
      case 6:
      case 7: {
        SampleRequest sample{.request_id = id, .prompt = {1, 2, 3}};
        if (!model.versions.empty())
          sample.version_id = model.versions[Below(static_cast<uint32_t>(model.versions.size()))];
        sample.params = {.max_tokens = 4, .temperature = 0, .ignore_eos = true};
        group.Send(sample);
        return id;
      }
      default:
        break;
    }
    TrainRequest request{.request_id = id, .model_id = model_id, .seq_id = seq};
    request.loss = DefaultLoss("cross_entropy");
    for (uint32_t n = 1 + Below(3); n > 0; --n) {
      TrainDatum datum;
      for (uint32_t i = 0; i < 2 + Below(6); ++i) {
        datum.tokens.push_back(static_cast<int32_t>(Below(8)));
        datum.targets.push_back(Below(8));
        datum.weights.push_back(1);
      }
      request.data.push_back(std::move(datum));
    }
    model.window.push_back(seq);
    group.Send(TrainBatch{{std::move(request)}});
    return id;
  }

  static std::vector<double> NumbersOf(const Report& report) {
    std::vector<double> numbers{static_cast<double>(report.index())};
    if (const auto* trained = std::get_if<TrainDone>(&report)) {
      for (const auto& row : trained->output.logprobs) {
        numbers.insert(numbers.end(), row.begin(), row.end());
      }
    } else if (const auto* sampled = std::get_if<SampleDone>(&report)) {
      for (const SampledSequence& sequence : sampled->output.sequences) {
        numbers.insert(numbers.end(), sequence.tokens.begin(), sequence.tokens.end());
      }
    } else if (const auto* failed = std::get_if<OpFailed>(&report)) {
      numbers.push_back(static_cast<double>(failed->status.code()));
    } else if (const auto* snapshot = std::get_if<SnapshotDone>(&report)) {
      numbers.push_back(static_cast<double>(snapshot->status.code()));
    } else if (const auto* saved = std::get_if<VersionSaved>(&report)) {
      numbers.push_back(static_cast<double>(saved->status.code()));
    }
    return numbers;
  }

  std::mt19937 random_;
  std::map<std::string, Ledger> ledgers_;
  std::string saved_;
};

std::vector<std::string> Describe(const ExecutorState& state) {
  std::vector<std::string> lines;
  for (const HeldVersion& version : state.versions) lines.push_back(version.version_id);
  for (const ModelState& model : state.models) {
    lines.push_back(model.model_id + " at " + std::to_string(model.applied_seq));
    for (const int64_t seq : model.window) lines.back() += ", " + std::to_string(seq);
  }
  return lines;
}

TEST_CASE("a group of ranks does what one rank does, and all its ranks hold the same",
          "[executor][ranks]") {
  const TempDir model;
  WriteRandomFolder(model.path(), {.num_layers = 4});
  const auto seed = GENERATE(range(1u, 4u));
  const MeshShape mesh = GENERATE(MeshShape{.dp = 2}, MeshShape{.fsdp = 2}, MeshShape{.tp = 2});
  Group alone(model.path(), {.mesh = {}});
  Group group(model.path(), {.mesh = mesh});
  const auto expected = Program(seed).Run(alone);
  const auto outcomes = Program(seed).Run(group);
  REQUIRE(outcomes.size() == expected.size());
  for (const auto& [id, numbers] : expected) {
    INFO(id);
    CHECK_THAT(outcomes.at(id), Catch::Matchers::Approx(numbers).margin(1e-3));
  }
  CHECK(Describe(group.executor(0).State()) == Describe(alone.executor(0).State()));
  group.Stop();  // after a round that all ranks have ended
  CHECK(Describe(group.executor(1).State()) == Describe(group.executor(0).State()));
  const ExecutorCounters first = group.executor(0).State().counters;
  const ExecutorCounters second = group.executor(1).State().counters;
  CHECK(first.train_passes == second.train_passes);
  CHECK(first.generated_tokens == second.generated_tokens);
  CHECK(first.version_loads == second.version_loads);
  CHECK(first.snapshots == second.snapshots);
  CHECK(group.num_followers_reports() == 0);
  CHECK(group.num_answered_twice() == 0);
}

TEST_CASE("every rank reads a version for itself", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  group.Send(PublishVersion{"2", "a", 1, "x"});
  group.Send(SaveVersion{.version_id = "x", .dir = "saved", .manifest_json = "{}"});
  CHECK(group.AwaitAs<VersionSaved>("saved:x").status.ok());
  group.Send(LoadVersion{.version_id = "y", .dir = "saved"});
  SampleRequest sample{.request_id = "3", .version_id = "y", .prompt = {1, 2, 3}};
  sample.params = {.max_tokens = 4, .ignore_eos = true};
  group.Send(sample);
  CHECK(group.AwaitAs<SampleDone>("3").output.sequences.at(0).tokens.size() == 4);
  group.Stop();
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(group.executor(rank).State().counters.version_loads >= 1);
    CHECK(Describe(group.executor(rank).State()) == std::vector<std::string>{"x", "y", "a at 0"});
  }
}

TEST_CASE("a Reset reaches all ranks", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {.mesh = {.dp = 3}});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  group.AwaitAs<OpDone>("1");
  group.executor(0).Reset(1);
  group.Send(CreateAdapter{"2", "b", {.rank = 2}});
  group.AwaitAs<OpDone>("2");
  group.Stop();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(Describe(group.executor(rank).State()) == std::vector<std::string>{"b at 0"});
  }
}

TEST_CASE("a model that was saved is loaded by all ranks or by none", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  group.Send(SaveCheckpoint{
      .request_id = "2", .model_id = "a", .seq_id = 1, .dir = "saved", .manifest_json = "{}"});
  group.AwaitAs<SaveDone>("2");
  group.Send(LoadAdapter{"3", "b", 4, "saved"});
  group.Send(LoadAdapter{"4", "c", 4, "missing"});
  group.AwaitAs<OpDone>("3");
  const OpFailed failed = group.AwaitAs<OpFailed>("4");
  CHECK_THAT(std::string(failed.status.message()), Contains("rank 0"));
  group.Stop();
  CHECK(Describe(group.executor(1).State()) == std::vector<std::string>{"a at 0", "b at 4"});
}

TEST_CASE("a rank that cannot load ends the load of all, by its name", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {.model_paths = {model.path(), "/nonexistent"}});
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(group.AwaitEnd(rank));
    CHECK(absl::IsNotFound(group.load_failure(rank)));
    CHECK_THAT(std::string(group.load_failure(rank).message()), Contains("rank 1 of tp: "));
  }
}

TEST_CASE("a tokenizer with tokens beyond the vocabulary ends the load, by name",
          "[executor][ranks]") {
  const bool is_special = GENERATE(false, true);
  const TempDir model;
  WriteModelFolder(model.path(), SmallTensors(), SmallConfig());
  const nlohmann::json token = {{"id", 8}, {"content", "<image>"}, {"special", is_special}};
  std::ofstream(model / "tokenizer.json") << nlohmann::json{
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", nlohmann::json::array()}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", {token}}};
  Group group(model.path(), {.mesh = {.dp = 2}});
  if (is_special) {
    group.Send(CreateAdapter{"1", "a", {.rank = 2, .seed = 7}});
    group.AwaitAs<OpDone>("1");
    return;
  }
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(group.AwaitEnd(rank));
    CHECK_THAT(std::string(group.load_failure(rank).message()),
               Contains("tokenizer.json has token 8 (\"<image>\"), config.json: vocab_size is 8"));
  }
}

TEST_CASE("ranks of data with other weights are refused, by name", "[executor][ranks]") {
  const ModelFolder model;
  const TempDir other;
  std::map<std::string, at::Tensor> tensors = SmallTensors();
  tensors.at("model.norm.weight") += 1;
  WriteModelFolder(other.path(), tensors, SmallConfig());
  Group group(model.path(), {.mesh = {.dp = 2}, .model_paths = {model.path(), other.path()}});
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(group.AwaitEnd(rank));
    CHECK(absl::IsFailedPrecondition(group.load_failure(rank)));
    CHECK_THAT(std::string(group.load_failure(rank).message()),
               Contains("content hash of the base model: rank 1 has "));
  }
}

TEST_CASE("ranks that do not the same end", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {.decode = [](const std::string&) -> absl::StatusOr<Command> {
                return Command(CreateAdapter{"1", "other", {.rank = 2}});
              }});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(group.AwaitEnd(rank));
    CHECK_THAT(std::string(group.disagreement(rank).message()),
               Contains("rank 1 differs from rank 0"));
  }
}

TEST_CASE("a rank that ends amidst its work ends the others", "[executor][ranks]") {
  const ModelFolder model;
  Group group(model.path(), {.decode = [](const std::string&) -> absl::StatusOr<Command> {
                return absl::DataLossError("a broken rank");
              }});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  REQUIRE(group.AwaitEnd(1));
  REQUIRE(group.AwaitEnd(0));
  CHECK(group.disagreement(1) == absl::DataLossError("a broken rank"));
  CHECK_THAT(std::string(group.disagreement(0).message()), Contains("rank 1"));
}

TEST_CASE("a rank that is asked to stop ends the others in order", "[executor][ranks]") {
  const ModelFolder model;
  const int stopper = GENERATE(0, 1);
  Group group(model.path(), {});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  group.AwaitAs<OpDone>("1");
  group.executor(stopper).Stop();
  REQUIRE(group.AwaitEnd(1 - stopper));
  CHECK_THAT(std::string(group.disagreement(1 - stopper).message()), Contains("asked to stop"));
}

TEST_CASE("a rank that is asked to stop does not wait for ever for one that hangs",
          "[executor][ranks]") {
  const ModelFolder model;
  absl::Notification hangs, goes_on;
  Group group(model.path(), {.decode = [&](const std::string& encoded) -> absl::StatusOr<Command> {
                if (encoded == "0") return Command(CreateAdapter{"1", "a", {.rank = 2}});
                hangs.Notify();
                goes_on.WaitForNotification();
                return Command(DropVersion{"x"});
              }});
  group.Send(CreateAdapter{"1", "a", {.rank = 2}});
  group.AwaitAs<OpDone>("1");
  group.Send(DropVersion{"x"});
  hangs.WaitForNotification();
  CHECK_FALSE(group.executor(0).TryStop(absl::Milliseconds(100)));
  goes_on.Notify();
  CHECK(group.executor(0).TryStop(kPatience));
}

TEST_CASE("the other ranks take no commands", "[executor][ranks]") {
  Executor executor({.mesh = {.tp = 2}, .rank = 1}, {}, [](absl::Status) {});
  CHECK(absl::IsFailedPrecondition(executor.Submit(DropVersion{"a"}, "")));
}

}  // namespace
}  // namespace lathe::worker
