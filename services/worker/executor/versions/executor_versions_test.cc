#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <random>

#include "absl/synchronization/notification.h"
#include "services/worker/executor/versions/version_thread.h"
#include "services/worker/testing/test_core.h"

namespace lathe::worker {
namespace {

CoreOptions RoomFor(int64_t num_versions) {
  return {.model_ops = {.version_bytes = num_versions * VersionBytes()}};
}

// Publishes the model's current weights as v<index>, then takes a step.
void PublishThenStep(Worker& worker, int64_t index) {
  const int64_t seq_id = 4 * index;
  const std::string name = std::to_string(index);
  worker.core.Apply(PublishVersion{"publish" + name, "m", seq_id + 1, "v" + name});
  worker.Apply({Train("m", seq_id + 2)});
  const int64_t applied = index == 0 ? 0 : seq_id - 1;
  worker.core.Apply(Step("m", seq_id + 3, applied, {seq_id + 2}));
  worker.Drain();
}

// Like PublishThenStep, but also saves a checkpoint c<index>, which is not loaded yet.
void SaveAndStep(Worker& worker, int64_t index) {
  worker.core.Apply(SaveCheckpoint{.request_id = "save",
                                   .model_id = "m",
                                   .kind = CheckpointKind::kSampler,
                                   .dir = "c" + std::to_string(index),
                                   .manifest_json = "{}"});
  PublishThenStep(worker, index);
  worker.NextSave();
}

TEST_CASE("while a version is read, others sample, and its samples start when it is here",
          "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  const SampleOutput expected = SampleFrom(worker, "v0");
  worker.core.Apply(LoadVersion{"c0", "c0"});
  worker.core.Apply(Sample("waits", "c0"));
  worker.core.Apply(Sample("goes on", "v0"));
  while (worker.core.RunUnit()) {
  }
  const auto meanwhile = worker.core.TakeReports();
  Answer<SampleDone>(meanwhile, "goes on");
  CHECK(meanwhile.size() == 2);  // only its Started and SampleDone
  CHECK(worker.version_jobs.waiting.size() == 1);
  CHECK(VersionIds(worker.core) == std::vector<std::string>{"c0", "v0"});
  CheckEqual(Answer<SampleDone>(worker.Drain(), "waits").output, expected);
  CHECK(worker.core.counters().version_loads == 1);
}

TEST_CASE("samples of an inflight version go on with a newer publication that is loaded",
          "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  SaveAndStep(worker, 1);
  const std::string version_id = "m@inflight";
  const auto load = [&](const std::string& dir, int64_t seq_id) {
    worker.core.Apply(LoadVersion{version_id, dir, seq_id});
  };
  load("c0", 1);
  worker.RunVersionJob();
  SampleRequest request = Sample("long", version_id);
  request.params.max_tokens = 30;
  worker.core.Apply(request);
  for (int unit = 0; unit < 5; ++unit) worker.core.RunUnit();
  const std::string dir = GENERATE("c1", "none");
  load(dir, 5);
  worker.core.Apply(Sample("waits", version_id));
  for (int unit = 0; unit < 5; ++unit) worker.core.RunUnit();
  worker.RunVersionJob();
  const auto reports = worker.Drain();
  const auto runs = Answer<SampleDone>(reports, "long").output.sequences.at(0).weights_runs;
  CHECK(runs.at(0).seq_id == 1);
  std::vector<int64_t> loaded;
  for (const ReportEvent& event : reports) {
    const auto* const report = std::get_if<VersionLoaded>(&event.report);
    if (report != nullptr) loaded.push_back(report->inflight_seq_id);
  }
  if (dir == "none") {  // the samples keep their weights
    CHECK(runs.size() == 1);
    CHECK(loaded == std::vector<int64_t>{1});
    Answer<OpFailed>(reports, "waits");
    return;
  }
  CHECK(loaded == std::vector<int64_t>{1, 5});
  REQUIRE(runs.size() == 2);
  CHECK(runs[1].seq_id == 5);
  CHECK(runs[0].num_tokens > 4);  // while the newer one was read
  CHECK(runs[0].num_tokens + runs[1].num_tokens == 30);
  CHECK((worker.core.Versions().at(0) == HeldVersion{version_id, 5}));
  // A version that is already here is answered at once.
  load("c1", 5);
  CHECK(std::get<VersionLoaded>(worker.core.TakeReports().at(0).report).inflight_seq_id == 5);
  const auto next = SampleFrom(worker, version_id).sequences.at(0).weights_runs;
  CHECK(next.at(0).seq_id == 5);
}

TEST_CASE("a sample that waits for its version can be cancelled, and ends when it is dropped",
          "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  worker.core.Apply(LoadVersion{"c0", "c0"});
  worker.core.Apply(Sample("cancelled", "c0"));
  worker.core.Apply(Sample("left", "c0"));
  worker.core.Apply(Cancel{"cancelled"});
  worker.core.Apply(DropVersion{"c0"});
  const auto reports = worker.Drain();
  CHECK(Answer<OpFailed>(reports, "cancelled").status.code() == absl::StatusCode::kCancelled);
  CHECK(Answer<OpFailed>(reports, "left").status.code() == absl::StatusCode::kNotFound);
  CHECK(worker.core.version_usage().num_in_memory == 1);  // v0
}

TEST_CASE("versions that do not fit go to disk, the one used longest ago first", "[versions]") {
  Worker all;
  Worker worker(RoomFor(2));
  for (int64_t index = 0; index < 2; ++index) {
    PublishThenStep(all, index);
    PublishThenStep(worker, index);
  }
  CHECK(worker.core.counters().version_evictions == 0);
  SampleFrom(worker, "v0");
  PublishThenStep(all, 2);
  PublishThenStep(worker, 2);
  CHECK(worker.core.counters().version_evictions == 1);
  CHECK(worker.core.version_usage().num_in_memory == 2);
  CHECK(worker.core.version_usage().bytes_in_memory == 2 * VersionBytes());
  CHECK(VersionIds(worker.core) == std::vector<std::string>{"v0", "v1", "v2"});
  // v1 was evicted.
  CheckEqual(SampleFrom(worker, "v0"), SampleFrom(all, "v0"));
  CHECK(worker.core.counters().version_loads == 0);
  CheckEqual(SampleFrom(worker, "v1"), SampleFrom(all, "v1"));
  CHECK(worker.core.counters().version_loads == 1);
  CHECK(worker.core.version_usage().num_in_memory == 2);
}

TEST_CASE("a version whose samples run stays, and goes when they are done", "[versions]") {
  Worker worker(RoomFor(1));
  PublishThenStep(worker, 0);
  SampleRequest request = Sample("long", "v0");
  request.params.max_tokens = 30;
  worker.core.Apply(request);
  for (int unit = 0; unit < 3; ++unit) worker.core.RunUnit();
  worker.core.Apply(PublishVersion{"publish", "m", 5, "v1"});
  worker.core.RunUnit();
  worker.RunVersionJob();  // v1 may be evicted, v0 is in use
  worker.core.RunUnit();
  CHECK(worker.core.version_usage().num_in_memory == 1);
  CHECK(worker.core.counters().version_evictions == 1);
  Answer<SampleDone>(worker.Drain(), "long");
  CHECK(worker.core.counters().version_loads == 0);
  SampleFrom(worker, "v1");
  CHECK(worker.core.counters().version_loads == 1);
  CHECK(worker.core.version_usage().num_in_memory == 1);
}

TEST_CASE("a version that is wanted while it is spilled stays in memory", "[versions]") {
  Worker worker(RoomFor(1));
  PublishThenStep(worker, 0);
  worker.core.Apply(PublishVersion{"publish", "m", 5, "v1"});
  worker.core.RunUnit();
  REQUIRE(worker.version_jobs.waiting.size() == 1);
  SampleRequest request = Sample("s", "v0");
  request.params.max_tokens = 30;
  worker.core.Apply(request);
  worker.core.RunUnit();
  worker.RunVersionJob();
  Answer<SampleDone>(worker.Drain(), "s");
  CHECK(worker.core.counters().version_loads == 0);
}

TEST_CASE("a version that disk cannot take stays in memory", "[versions]") {
  Worker worker(RoomFor(1));
  std::filesystem::remove_all(worker.dir / "tmp");
  std::ofstream(worker.dir / "tmp") << "a file where a folder is to be";
  PublishThenStep(worker, 0);
  const SampleOutput expected = SampleFrom(worker, "v0");
  PublishThenStep(worker, 1);
  CHECK(worker.core.version_usage().num_in_memory == 2);
  CheckEqual(SampleFrom(worker, "v0"), expected);
  CHECK(worker.core.counters().version_loads == 0);
}

TEST_CASE("a spilled version that could not be read fails its samples, and is read again",
          "[versions]") {
  Worker worker(RoomFor(1));
  PublishThenStep(worker, 0);
  const SampleOutput expected = SampleFrom(worker, "v0");
  PublishThenStep(worker, 1);
  SampleFrom(worker, "v1");  // evicts v0
  worker.core.Apply(Sample("s", "v0"));
  VersionJobDone done = worker.version_jobs.RunNext();
  done.result = absl::UnavailableError("no memory for a moment");
  worker.core.Apply(std::move(done));
  const auto reports = worker.Drain();
  CHECK(Answer<OpFailed>(reports, "s").status.code() == absl::StatusCode::kUnavailable);
  CHECK(reports.size() == 1);  // the version is still held
  CHECK(VersionIds(worker.core) == std::vector<std::string>{"v0", "v1"});
  CheckEqual(SampleFrom(worker, "v0"), expected);
}

TEST_CASE("versions that disk does not take leave no room for models", "[versions]") {
  // Room for the first model, one staging buffer and 2 versions.
  Worker worker(
      {.model_ops = {.adapter_bytes = 11 * VersionBytes(), .version_bytes = VersionBytes()}});
  std::filesystem::remove_all(worker.dir / "tmp");
  std::ofstream(worker.dir / "tmp") << "a file where a folder is to be";
  PublishThenStep(worker, 0);
  PublishThenStep(worker, 1);
  REQUIRE(worker.core.version_usage().num_in_memory == 2);
  worker.core.Apply(CreateAdapter{"second", "n", {.rank = 4, .seed = 2}});
  CHECK(Answer<OpFailed>(worker.Drain(), "second").status.code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a checkpoint that is damaged after its eviction fails the samples, and loads again",
          "[versions]") {
  Worker worker(RoomFor(1));
  SaveAndStep(worker, 0);
  worker.core.Apply(LoadVersion{"c0", "c0"});
  worker.Drain();
  const SampleOutput expected = SampleFrom(worker, "c0");
  SampleFrom(worker, "v0");
  const auto path = worker.dir / "c0/adapter_model.safetensors";
  const auto moved = worker.dir / "moved";
  std::filesystem::rename(path, moved);
  worker.core.Apply(Sample("s", "c0"));
  const auto reports = worker.Drain();
  CHECK(std::get<VersionFailed>(reports.at(0).report).version_id == "c0");
  CHECK(Answer<OpFailed>(reports, "s").status.code() == absl::StatusCode::kDataLoss);
  CHECK(VersionIds(worker.core) == std::vector<std::string>{"v0"});
  std::filesystem::rename(moved, path);
  worker.core.Apply(LoadVersion{"c0", "c0"});
  CheckEqual(SampleFrom(worker, "c0"), expected);
}

TEST_CASE("when too many versions are being read, a sample fails and the next one tries again",
          "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  worker.version_jobs.max_waiting = 0;
  worker.core.Apply(LoadVersion{"c0", "c0"});
  worker.core.Apply(Sample("refused", "c0"));
  CHECK(Answer<OpFailed>(worker.Drain(), "refused").status.code() ==
        absl::StatusCode::kResourceExhausted);
  worker.version_jobs.max_waiting = 1;
  SampleFrom(worker, "c0");
}

TEST_CASE("weights that were read for an older generation are not used", "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  worker.core.Apply(LoadVersion{"c0", "c0"});
  worker.core.Apply(Sample("s", "c0"));
  VersionJobDone done = worker.version_jobs.RunNext();
  VersionJobDone older = done;
  older.generation = 2;
  worker.core.Apply(older);
  CHECK(worker.Drain().empty());
  worker.core.Apply(done);
  Answer<SampleDone>(worker.Drain(), "s");
}

TEST_CASE("random use of 50 versions with room for 5 gives what it gives with room for all",
          "[versions]") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  constexpr int64_t kVersions = 50;
  constexpr int64_t kRoom = 5;
  Worker all;
  Worker few(RoomFor(kRoom));
  for (int64_t index = 0; index < kVersions; ++index) {
    for (Worker* const worker : {&all, &few}) {
      if (index % 2 == 0) {
        PublishThenStep(*worker, index);
      } else {
        SaveAndStep(*worker, index);
        const std::string name = std::to_string(index);
        worker->core.Apply(DropVersion{"v" + name});
        worker->core.Apply(LoadVersion{"v" + name, "c" + name});
      }
    }
  }
  const auto run = [&](Worker& worker) {
    std::mt19937 random(seed);
    std::map<std::string, SampleOutput> outputs;
    const auto collect = [&](const std::vector<ReportEvent>& reports) {
      for (const ReportEvent& event : reports) {
        CHECK_FALSE(std::holds_alternative<OpFailed>(event.report));
        const auto* const done = std::get_if<SampleDone>(&event.report);
        if (done != nullptr) outputs[done->request_id] = done->output;
      }
    };
    for (int i = 0; i < 300; ++i) {
      SampleRequest request = Sample(std::to_string(i), "v" + std::to_string(random() % kVersions));
      request.tenant_id = "t";
      request.params.max_tokens = 1 + static_cast<int64_t>(random() % 6);
      request.params.temperature = 1;
      request.params.seed = random();
      worker.core.Apply(request);
      for (auto units = random() % 3; units > 0; --units) worker.core.RunUnit();
      for (auto jobs = random() % 3; jobs > 0; --jobs) worker.RunVersionJob();
    }
    collect(worker.Drain());
    return outputs;
  };
  const auto expected = run(all);
  const auto outputs = run(few);
  REQUIRE(outputs.size() == 300);
  for (const auto& [request_id, output] : outputs) CheckEqual(output, expected.at(request_id));
  CHECK(all.core.counters().version_evictions == 0);
  CHECK(few.core.counters().version_evictions > 50);
  CHECK(few.core.version_usage().num_in_memory <= kRoom);
}

TEST_CASE("models take the room of versions without samples", "[versions]") {
  // The first model takes 5 times its weights, and the staging of snapshots 8 times. The rest has
  // room for 6 more versions, or for one more model.
  Worker worker({.model_ops = {.adapter_bytes = 19 * VersionBytes()}});
  for (int64_t index = 0; index < 6; ++index) PublishThenStep(worker, index);
  CHECK(worker.core.version_usage().num_in_memory == 6);
  worker.core.Apply(CreateAdapter{"second", "n", {.rank = 4, .seed = 2}});
  Answer<OpDone>(worker.Drain(), "second");
  CHECK(worker.core.version_usage().num_in_memory == 1);
  SampleFrom(worker, "v0");
}

TEST_CASE("the thread returns each read to its request", "[versions]") {
  Worker worker;
  SaveAndStep(worker, 0);
  VersionFiles files(worker.store, at::kCPU);
  absl::Notification read;
  std::vector<VersionJobDone> results;
  VersionThread thread(files, [&](VersionJobDone done) {
    results.push_back(std::move(done));
    if (results.size() == 2) read.Notify();
  });
  REQUIRE(thread.Enqueue({.ticket = 1, .version_id = "c", .work = ReadCheckpoint{"c0"}}).ok());
  REQUIRE(thread.Enqueue({.ticket = 2, .version_id = "d", .work = ReadCheckpoint{"none"}}).ok());
  read.WaitForNotification();
  CHECK(results[0].ticket == 1);
  CHECK(results[0].result.ok());
  CHECK(results[1].version_id == "d");
  CHECK_FALSE(results[1].result.ok());
}

}  // namespace
}  // namespace lathe::worker
