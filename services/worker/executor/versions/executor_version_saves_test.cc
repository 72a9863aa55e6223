#include <catch2/catch.hpp>

#include "services/worker/testing/snapshot_test_tools.h"

namespace lathe::worker {
namespace {

// Publishes the model's current weights as v<index>, or as an inflight version, then takes a step.
void PublishAndStep(Worker& worker, int64_t index, bool is_inflight = false) {
  const int64_t seq_id = 4 * index;
  const std::string name = is_inflight ? "live" : "v" + std::to_string(index);
  worker.core.Apply(PublishVersion{"publish", "m", seq_id + 1, name, is_inflight});
  worker.Apply({Train("m", seq_id + 2)});
  worker.core.Apply(Step("m", seq_id + 3, index == 0 ? 0 : seq_id - 1, {seq_id + 2}));
  worker.Drain();
}

VersionSaved Save(Worker& worker, const std::string& version_id, const std::string& dir) {
  worker.core.Apply(SaveVersion{version_id, dir, R"({"engine_term": 7})"});
  VersionSaved saved = Only<VersionSaved>(worker.Drain());
  CHECK(saved.version_id == version_id);
  CHECK(saved.dir == dir);
  return saved;
}

TEST_CASE("a saved version loads as it was in another process", "[versions]") {
  Worker worker;
  for (int64_t index = 0; index < 3; ++index) PublishAndStep(worker, index);
  const VersionSaved saved = Save(worker, "v1", "d");
  REQUIRE(saved.status.ok());
  CHECK(saved.seq_id == 5);
  CHECK(saved.manifest_sha256 == DigestFile(worker.dir / "d/manifest.json")->sha256);
  CHECK(saved.size_bytes > VersionBytes());
  const auto manifest = ReadManifest(worker.dir / "d");
  REQUIRE(manifest.ok());
  CHECK(manifest->kind == CheckpointKind::kSampler);
  CHECK(manifest->model_id == "m");
  CHECK(manifest->applied_seq == 3);

  Worker other;
  CopyDir(worker, other, "d");
  other.core.Apply(LoadVersion{"v1", "d"});
  CheckEqual(SampleFrom(other, "v1"), SampleFrom(worker, "v1"));
}

TEST_CASE("a version on disk, one being spilled and one of a checkpoint are saved too",
          "[versions]") {
  Worker worker({.model_ops = {.version_bytes = VersionBytes()}});
  for (int64_t index = 0; index < 3; ++index) PublishAndStep(worker, index);
  CHECK(worker.core.counters().version_evictions == 2);
  const SampleOutput first = SampleFrom(worker, "v0");
  const SampleOutput second = SampleFrom(worker, "v1");
  const int64_t loads = worker.core.counters().version_loads;
  REQUIRE(Save(worker, "v0", "spilled").status.ok());
  CHECK(worker.core.counters().version_loads == loads);  // the save did not bring it into memory
  worker.core.Apply(LoadVersion{"again", "spilled"});
  REQUIRE(Save(worker, "again", "copy").status.ok());
  CHECK(ReadManifest(worker.dir / "copy")->model_id == "m");
  CHECK(ReadManifest(worker.dir / "copy")->applied_seq == 0);
  REQUIRE(Save(worker, "v1", "other").status.ok());

  Worker other;
  for (const char* dir : {"spilled", "copy", "other"}) {
    CopyDir(worker, other, dir);
    other.core.Apply(LoadVersion{dir, dir});
  }
  CheckEqual(SampleFrom(other, "spilled"), first);
  CheckEqual(SampleFrom(other, "copy"), first);
  CheckEqual(SampleFrom(other, "other"), second);
}

TEST_CASE("a saved version is dropped from memory instead of spilled", "[versions]") {
  Worker worker({.model_ops = {.version_bytes = VersionBytes()}});
  PublishAndStep(worker, 0);
  const SampleOutput expected = SampleFrom(worker, "v0");
  // A version is not spilled while it is being saved.
  worker.core.Apply(SaveVersion{"v0", "d", "{}"});
  PublishVersion second{"publish", "m", 5, "v1"};
  worker.core.Apply(second);
  while (worker.core.RunUnit()) {
  }
  for (const VersionJob& job : worker.version_jobs.waiting) CHECK(job.version_id == "v1");
  worker.Drain();
  CHECK(worker.core.version_usage().num_in_memory == 1);
  CheckEqual(SampleFrom(worker, "v0"), expected);
  // It was read from the saved checkpoint.
  worker.core.Apply(Sample("other", "v1"));
  worker.Drain();
  std::filesystem::remove_all(worker.dir / "d");
  worker.core.Apply(Sample("gone", "v0"));
  CHECK(Answer<OpFailed>(worker.Drain(), "gone").status.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("of an inflight version the weights it has now are saved, and load as those",
          "[versions]") {
  Worker worker;
  PublishAndStep(worker, 0, /*is_inflight=*/true);
  PublishAndStep(worker, 1, /*is_inflight=*/true);
  const VersionSaved saved = Save(worker, "live", "d");
  REQUIRE(saved.status.ok());
  CHECK(saved.seq_id == 5);
  const SampleOutput expected = SampleFrom(worker, "live");

  Worker other;
  CopyDir(worker, other, "d");
  other.core.Apply(LoadVersion{"live", "d", saved.seq_id});
  const SampleOutput loaded = SampleFrom(other, "live");
  CheckEqual(loaded, expected);
  REQUIRE(loaded.sequences[0].weights_runs.size() == 1);
  CHECK(loaded.sequences[0].weights_runs[0].seq_id == 5);
  // A later publication replaces it.
  other.core.Apply(PublishVersion{"publish", "m", 9, "live", true});
  CHECK(SampleFrom(other, "live").sequences[0].weights_runs.at(0).seq_id == 9);
}

TEST_CASE("a later publication of an inflight version is loaded in the place of an earlier one",
          "[versions]") {
  Worker worker;
  PublishAndStep(worker, 0, /*is_inflight=*/true);
  REQUIRE(Save(worker, "live", "first").status.ok());
  PublishAndStep(worker, 1, /*is_inflight=*/true);
  REQUIRE(Save(worker, "live", "second").status.ok());

  Worker other;
  CopyDir(worker, other, "first");
  CopyDir(worker, other, "second");
  other.core.Apply(LoadVersion{"live", "first", 1});
  const bool is_here = GENERATE(false, true);
  if (is_here) SampleFrom(other, "live");
  other.core.Apply(LoadVersion{"live", "second", 5});
  CheckEqual(SampleFrom(other, "live"), SampleFrom(worker, "live"));
  other.core.Apply(LoadVersion{"live", "first", 1});
  CHECK(SampleFrom(other, "live").sequences[0].weights_runs.at(0).seq_id == 5);
}

TEST_CASE("a version that is published again while it is saved keeps its new weights",
          "[versions]") {
  Worker worker({.model_ops = {.version_bytes = 0}});
  PublishAndStep(worker, 0, /*is_inflight=*/true);
  worker.core.Apply(SaveVersion{"live", "d", "{}"});
  PublishVersion again{"publish", "m", 5, "live", true};
  worker.core.Apply(again);
  while (worker.core.RunUnit()) {
  }
  CHECK(Only<VersionSaved>(worker.Drain()).seq_id == 1);
  CHECK(SampleFrom(worker, "live").sequences[0].weights_runs.at(0).seq_id == 5);
}

TEST_CASE("a save that comes before its publication's turn waits for it", "[versions]") {
  Worker worker;
  worker.Apply({Train("m", 1)});
  worker.core.Apply(PublishVersion{"publish", "m", 2, "v"});
  worker.core.Apply(SaveVersion{"v", "d", "{}"});
  CHECK(worker.core.TakeReports().empty());
  CHECK(Only<VersionSaved>(worker.Drain()).seq_id == 2);
}

TEST_CASE("a version that is absent or cannot be written is reported", "[versions]") {
  Worker worker;
  CHECK(Save(worker, "gone", "d").status.code() == absl::StatusCode::kNotFound);
  worker.core.Apply(PublishVersion{"publish", "gone", 1, "v"});
  worker.core.Apply(SaveVersion{"v", "d", "{}"});
  CHECK(Only<VersionSaved>(worker.Drain()).status.code() == absl::StatusCode::kNotFound);
  PublishAndStep(worker, 0);
  CHECK(Save(worker, "v0", "../d").status.code() == absl::StatusCode::kInvalidArgument);
  worker.recovery_jobs.max_waiting = 0;
  CHECK(Save(worker, "v0", "d").status.code() == absl::StatusCode::kResourceExhausted);
  worker.recovery_jobs.max_waiting = 1;
  CHECK(Save(worker, "v0", "d").status.ok());
}

TEST_CASE("a snapshot is the file of a version of the same weights", "[versions]") {
  Worker worker;
  PublishAndStep(worker, 0);
  worker.core.Apply(PublishVersion{"publish", "m", 4, "v"});
  TakeSnapshot(worker, "m", "s");
  worker.core.Apply(LoadVersion{"from snapshot", "s"});
  CheckEqual(SampleFrom(worker, "from snapshot"), SampleFrom(worker, "v"));
}

}  // namespace
}  // namespace lathe::worker
