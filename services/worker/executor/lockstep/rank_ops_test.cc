// Tests operations that ranks with parts of the same models do together. Passes are tested with the
// model.
#include <catch2/catch.hpp>

#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/testing/snapshot_test_tools.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_rank_groups.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

Decoder PartModel(int64_t index, int64_t tp) {
  ModelPart part = TestPart(SmallSpec(), index, tp);
  DecoderWeights weights = SmallWeights(part.local);
  return Decoder(std::move(part), std::move(weights));
}

// The operations of one rank. Its saves are below `dir`.
struct Rank {
  Rank(const fs::path& dir, const RankGroups& groups, const std::string& base_hash = "hash",
       int64_t save_bytes = std::numeric_limits<int64_t>::max())
      : model(PartModel(groups.tp.rank(), groups.tp.world())),
        store(dir, model.part(), "base", base_hash),
        ops(model, store, writer, recovery_jobs, adapters, versions, /*generation=*/1,
            {.ranks = groups, .save_bytes = save_bytes}) {}

  // Returns the error's message, or "".
  std::string Run(const ModelLanes::Barrier& barrier) {
    const std::optional<Report> report = ops.Run(barrier);
    const auto* failed = report ? std::get_if<OpFailed>(&*report) : nullptr;
    return failed == nullptr ? "" : std::string(failed->status.message());
  }

  // Adds `value` to each number of this rank's gradient. The gradients of all holders are summed.
  void Accumulate(int64_t seq_id, float value) {
    Adapter& adapter = *adapters.Find("m");
    adapter.gradient.add_(value);
    adapter.window.insert(seq_id);
  }

  Decoder model;
  BoundedQueue<ReportEvent> saves{16};
  CheckpointStore store;
  CheckpointWriter writer{store, [this](ReportEvent event) { saves.Push(std::move(event)); },
                          [](SaveWritten) {}};
  FakeVersionJobs version_jobs{store};
  FakeRecoveryJobs recovery_jobs{store};
  AdapterPool adapters;
  VersionTable versions{version_jobs, /*generation=*/1};
  ModelOps ops;
};

const CreateAdapter kCreate{"create", "m", {.rank = 3, .seed = 5}};

SaveCheckpoint SaveOf(CheckpointKind kind, const std::string& dir) {
  return {.request_id = dir,
          .model_id = "m",
          .seq_id = 3,
          .kind = kind,
          .dir = dir,
          .manifest_json = "{}",
          .age_recipients = {}};
}

}  // namespace

TEST_CASE("ranks that step and save together write what one rank writes", "[ranks]") {
  const int tp = GENERATE(2, 4);
  const int data = GENERATE(1, 2);
  INFO("data " << data << " tp " << tp);
  const TempDir dir;
  Rank alone(dir / "alone", {});
  REQUIRE(alone.Run(kCreate).empty());
  Adapter& whole = *alone.adapters.Find("m");
  for (const AdapterMatrix& matrix : AdapterLayout(TestPart(SmallSpec(), 0, tp), kCreate.lora)) {
    for (const AdapterMatrix& target : AdapterLayout(alone.model.part(), kCreate.lora)) {
      if (target.name() != matrix.name()) continue;
      target.FactorOf(whole.gradient).fill_(0.5 * static_cast<double>(matrix.num_holders) * data);
    }
  }
  whole.window = {1};
  const auto save = [](Rank& rank) {
    return rank.Run(Step("m", 2, 0, {1})) + rank.Run(SaveOf(CheckpointKind::kTraining, "t")) +
           rank.Run(SaveOf(CheckpointKind::kSampler, "s")) +
           rank.Run(SaveOf(CheckpointKind::kExternal, "e"));
  };
  REQUIRE(save(alone).empty());
  for (int i = 0; i < 3; ++i) alone.saves.Pop();

  const std::vector<std::string> errors = AsMesh(data, tp, [&](const RankGroups& groups) {
    Rank rank(dir / "many", groups);
    std::string error = rank.Run(kCreate);
    rank.Accumulate(1, 0.5f);
    error += save(rank);
    for (int i = 0; groups.all.rank() == 0 && i < 3; ++i) {
      if (!std::holds_alternative<SaveDone>(rank.saves.Pop()->report)) error += "not saved";
    }
    return error;
  });
  CHECK(errors == std::vector<std::string>(data * tp));
  for (const char* name : {"t", "s", "e"}) {
    CheckSame(ReadFiles(dir / "many" / name), ReadFiles(dir / "alone" / name));
  }
}

TEST_CASE("ranks let the same saves wait, whoever has their memory", "[ranks]") {
  const auto [data, tp] = GENERATE(table<int, int>({{1, 2}, {2, 1}, {2, 2}}));
  INFO("data " << data << " tp " << tp);
  const TempDir dir;
  const std::vector<std::string> errors = AsMesh(data, tp, [&](const RankGroups& groups) {
    Rank rank(dir.path(), groups, "hash", /*save_bytes=*/1);
    std::string error = rank.Run(kCreate) + rank.Run(CreateAdapter{"create", "n", kCreate.lora});
    SaveCheckpoint other = SaveOf(CheckpointKind::kTraining, "u");
    other.model_id = "n";
    if (!rank.ops.MayRun(other)) error += "waits for nothing";
    error += rank.Run(SaveOf(CheckpointKind::kTraining, "t"));
    if (rank.ops.MayRun(other)) error += "does not wait";
    const int64_t whole = rank.adapters.Find("m")->sizes().whole;
    if (rank.writer.staged_bytes() != 12 * whole) error += "other bytes";
    if (rank.ops.SaveBytes() != (groups.all.rank() == 0 ? 12 * whole : 0)) error += "no memory";
    rank.writer.Remove({rank.writer.staged_bytes()});
    if (!rank.ops.MayRun(other)) error += "still waits";
    return error;
  });
  CHECK(errors == std::vector<std::string>(data * tp));
}

TEST_CASE("a snapshot with an open window puts every rank back where it was", "[ranks]") {
  const auto [data, tp] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 1}, {2, 2}}));
  INFO("data " << data << " tp " << tp);
  const TempDir dir;
  const std::vector<std::string> errors = AsMesh(data, tp, [&](const RankGroups& groups) {
    Rank rank(dir.path(), groups);
    std::string error = rank.Run(kCreate);
    rank.Accumulate(1, 0.5f);
    error += rank.Run(Step("m", 2, 0, {1}));
    rank.Accumulate(3, 0.25f * static_cast<float>(1 + groups.all.rank()));
    const at::Tensor gradient = rank.adapters.Find("m")->gradient.clone();
    rank.ops.Run(SnapshotOf("m", "s"));
    const RecoveryJobDone done = rank.recovery_jobs.RunNext();
    error += std::string(std::get<SnapshotDone>(done.report).status.message());
    groups.all.Sum("written", at::zeros({1}));

    Rank other(dir.path(), groups);
    error += other.Run(RestoreAdapter{"restore", "m", "s"});
    const Adapter& before = *rank.adapters.Find("m");
    const Adapter& after = *other.adapters.Find("m");
    const bool is_same = at::equal(after.parameters(), before.parameters()) &&
                         at::equal(after.exp_avg, before.exp_avg) &&
                         at::equal(after.exp_avg_sq, before.exp_avg_sq) &&
                         at::equal(after.gradient, gradient) && after.window == before.window &&
                         after.applied_seq == 2 && after.num_steps == 1;
    return error + (is_same ? "" : "not as it was");
  });
  CHECK(errors == std::vector<std::string>(data * tp));
}

TEST_CASE("a checkpoint that one rank cannot read is loaded by none", "[ranks]") {
  const TempDir dir;
  Rank alone(dir.path(), {});
  REQUIRE(alone.Run(kCreate).empty());
  REQUIRE(alone.Run(SaveOf(CheckpointKind::kTraining, "t")).empty());
  REQUIRE(std::holds_alternative<SaveDone>(alone.saves.Pop()->report));
  const std::vector<std::string> errors = AsMesh(1, 2, [&](const RankGroups& groups) {
    Rank rank(dir.path(), groups, groups.tp.rank() == 1 ? "another base" : "hash");
    const std::string error = rank.Run(LoadAdapter{"load", "m", 4, "t", /*with_optimizer=*/true});
    return error + (rank.adapters.Find("m") == nullptr ? "" : " is here");
  });
  CHECK_THAT(errors[0],
             Catch::StartsWith("rank 1: ") && Catch::Contains("checkpoint is of base model"));
  CHECK(errors[1] == errors[0]);  // neither rank has an adapter
}

TEST_CASE("ranks save a version of which each has spilled its part", "[ranks][versions]") {
  const bool is_spilled = GENERATE(false, true);
  const TempDir dir;
  Worker alone;
  alone.core.Apply(PublishVersion{"publish", "m", 1, "v", false});
  alone.core.Apply(SaveVersion{"v", "d", "{}"});
  alone.Drain();
  const std::vector<Files> files = AsMesh(1, 2, [&](const RankGroups& groups) {
    const Decoder model = PartModel(groups.tp.rank(), 2);
    CoreOptions options;
    options.model_ops = {.ranks = groups};
    if (is_spilled) options.model_ops.version_bytes = 0;
    Worker worker(options, model);
    worker.core.Apply(PublishVersion{"publish", "m", 1, "v", false});
    // Gives the adapter other weights, so that the version's weights can leave memory.
    worker.core.Apply(Step("m", 2, 0, {}));
    worker.Drain();
    Files found;
    if (is_spilled != (worker.core.version_usage().num_in_memory == 0)) found["not spilled"] = "";
    worker.core.Apply(SaveVersion{"v", "d", "{}"});
    worker.Drain();
    if (groups.tp.rank() == 0) found.merge(ReadFiles(worker.dir / "d"));
    return found;
  });
  CheckSame(files[0], ReadFiles(alone.dir / "d"));
  CHECK(files[1].empty());
}

}  // namespace lathe::worker
