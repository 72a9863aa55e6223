#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/resource.h>

#include "services/worker/executor/versions/recovery_thread.h"
#include "services/worker/testing/snapshot_test_tools.h"

namespace lathe::worker {
namespace {

// Runs two steps. With `has_window`, leaves an open window of two requests.
void TrainSome(Worker& worker, bool has_window) {
  worker.Apply({Train("m", 1)});
  worker.core.Apply(Step("m", 2, 0, {1}));
  worker.Apply({Train("m", 3, 0.25f)});
  worker.core.Apply(Step("m", 4, 2, {3}));
  if (has_window) worker.Apply({Train("m", 5), Train("m", 6, 0.125f)});
  worker.Drain();
}

const std::vector<int64_t> kWindow = {5, 6};

TEST_CASE("a restored model is the one that was there, its open window included", "[snapshots]") {
  const bool has_window = GENERATE(false, true);
  Worker worker;
  TrainSome(worker, has_window);
  const SnapshotDone done = TakeSnapshot(worker, "m", "s");
  CHECK(done.snapshot_id == "s");
  CHECK(done.state.applied_seq == 4);
  CHECK(done.state.window == (has_window ? kWindow : std::vector<int64_t>()));
  CHECK(done.write_time > absl::ZeroDuration());
  CHECK(done.manifest_sha256 == DigestFile(worker.dir / "s/manifest.json")->sha256);
  int64_t size = 0;
  for (const auto& [name, content] : ReadFiles(worker.dir / "s")) {
    size += static_cast<int64_t>(content.size());
  }
  CHECK(done.size_bytes == size);

  Worker other;
  other.core.Apply(DropAdapter{"", "m"});
  CopyDir(worker, other, "s");
  const ModelState state = Restore(other, "m", "s");
  CHECK(state.applied_seq == 4);
  CHECK(state.window == done.state.window);
  CheckSame(StateOf(other, "m"), StateOf(worker, "m"));
  for (Worker* each : {&worker, &other}) {
    each->core.Apply(Step("m", 7, 4, done.state.window));
    Answer<StepDone>(each->Drain(), "m:7");
  }
  CheckSame(StateOf(other, "m"), StateOf(worker, "m"));
}

TEST_CASE("restoring takes the place of what the model had, outputs of its window included",
          "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  TakeSnapshot(worker, "m", "s");
  const Files expected = StateOf(worker, "m");
  worker.Apply({Train("m", 7, 0.75f)});
  worker.core.Apply(Step("m", 8, 4, {5, 6, 7}));
  worker.Apply({Train("m", 9)});
  worker.Drain();
  CHECK(Restore(worker, "m", "s").window == kWindow);
  CheckSame(StateOf(worker, "m"), expected);
}

TEST_CASE("a request that a restored window has is answered and not added again", "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/false);
  worker.Apply({Train("m", 5)});
  const TrainOutput first = Answer<TrainDone>(worker.Drain(), "m:5").output;
  TakeSnapshot(worker, "m", "s");
  const Files expected = StateOf(worker, "m");
  Restore(worker, "m", "s");
  worker.Apply({Train("m", 5)});
  const TrainOutput again = Answer<TrainDone>(worker.Drain(), "m:5").output;
  CHECK(again.logprobs == first.logprobs);
  CHECK(Loss(again) == Loss(first));
  CHECK(worker.State().window == std::vector<int64_t>{5});
  CheckSame(StateOf(worker, "m"), expected);
}

TEST_CASE("a snapshot comes after the requests before it and before those behind it",
          "[snapshots]") {
  Worker worker({.trainer = {.token_budget = 4}});  // a pass for each datum
  worker.core.Apply(CreateAdapter{"create", "n", {.rank = 2, .seed = 2}});
  TrainRequest long_request = Train("m", 1);
  for (int i = 0; i < 4; ++i) long_request.data.push_back(long_request.data[0]);
  worker.Apply({long_request});
  worker.core.Apply(SnapshotOf("m", "s"));
  worker.Apply({Train("m", 2)});
  worker.core.Apply(SnapshotOf("n", "t"));
  worker.core.RunUnit();
  // A snapshot of another model does not wait.
  REQUIRE(worker.recovery_jobs.waiting.size() == 1);
  CHECK(std::get<WriteSnapshot>(worker.recovery_jobs.waiting[0].work).command.snapshot_id == "t");
  for (int unit = 0; unit < 10; ++unit) worker.core.RunUnit();
  CHECK(worker.recovery_jobs.waiting.size() == 1);
  while (worker.recovery_jobs.waiting.size() == 1) REQUIRE(worker.core.RunUnit());
  const auto& staged = std::get<WriteSnapshot>(worker.recovery_jobs.waiting[1].work).staged;
  CHECK(staged.model.window == std::vector<int64_t>{1});
  worker.Drain();
  CHECK(worker.State().window == std::vector<int64_t>{1, 2});
}

TEST_CASE("operations that run while a snapshot waits to be written are not in it", "[snapshots]") {
  Worker worker, undisturbed;
  TrainSome(worker, /*has_window=*/true);
  TrainSome(undisturbed, /*has_window=*/true);
  const Files expected = StateOf(undisturbed, "m");
  worker.core.Apply(SnapshotOf("m", "state"));
  while (worker.core.RunUnit()) {
  }
  worker.core.Apply(Step("m", 7, 4, kWindow));
  worker.Apply({Train("m", 8)});
  while (worker.core.RunUnit()) {
  }
  CHECK(worker.State().applied_seq == 7);
  Only<SnapshotDone>(worker.Drain());
  CheckSame(ReadFiles(worker.dir / "state"), expected);
}

const void* BufferOf(const Worker& worker, size_t job) {
  return std::get<WriteSnapshot>(worker.recovery_jobs.waiting.at(job).work)
      .staged.buffer.const_data_ptr();
}

TEST_CASE("snapshots share two buffers, the third waits for one of them", "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  for (const char* id : {"a", "b", "c", "d"}) worker.core.Apply(SnapshotOf("m", id));
  while (worker.core.RunUnit()) {
  }
  REQUIRE(worker.recovery_jobs.waiting.size() == 2);
  const void* const first = BufferOf(worker, 0);
  const void* const second = BufferOf(worker, 1);
  CHECK(first != second);
  // The model continues to train while snapshots wait.
  worker.Apply({Train("m", 7)});
  while (worker.core.RunUnit()) {
  }
  CHECK(worker.State().window == std::vector<int64_t>{5, 6, 7});
  worker.RunRecoveryJob();
  while (worker.core.RunUnit()) {
  }
  REQUIRE(worker.recovery_jobs.waiting.size() == 2);
  CHECK(BufferOf(worker, 1) == first);
  std::vector<std::string> ids;
  for (const ReportEvent& event : worker.Drain()) {
    const auto* done = std::get_if<SnapshotDone>(&event.report);
    if (done == nullptr) continue;
    CHECK(done->status.ok());
    ids.push_back(done->snapshot_id);
  }
  CHECK(ids == std::vector<std::string>{"a", "b", "c", "d"});
  CHECK(ReadManifest(worker.dir / "c")->window == std::vector<int64_t>{5, 6, 7});
}

TEST_CASE("where memory is short, snapshots have one buffer", "[snapshots]") {
  const int64_t num_parameters =
      Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
  // The model takes 20 bytes for each parameter, the staging of one snapshot 16.
  Worker worker({.model_ops = {.adapter_bytes = 36 * num_parameters}});
  worker.core.Apply(SnapshotOf("m", "a"));
  worker.core.Apply(SnapshotOf("m", "b"));
  while (worker.core.RunUnit()) {
  }
  CHECK(worker.recovery_jobs.waiting.size() == 1);
  worker.Drain();
  CHECK(ReadManifest(worker.dir / "b").ok());
}

TEST_CASE("while a model is staged, commands are taken and its state stays as it is",
          "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  const Files expected = StateOf(worker, "m");
  worker.core.Apply(SnapshotOf("m", "state"));
  int num_yields = 0;
  worker.core.RunUnit([&] {
    if (num_yields++ > 0) return;
    worker.core.Apply(Step("m", 7, 4, kWindow));
    worker.core.Apply(Sample("sample", ""));
  });
  CHECK(num_yields >= 3);  // two moments and the accumulator
  const auto reports = worker.Drain();
  Answer<StepDone>(reports, "m:7");
  Answer<SampleDone>(reports, "sample");
  CheckSame(ReadFiles(worker.dir / "state"), expected);
}

TEST_CASE("a snapshot that cannot be taken is reported, and the next one is taken", "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  worker.core.Apply(SnapshotOf("gone", "s"));
  const auto unknown = Only<SnapshotDone>(worker.Drain());
  CHECK(unknown.status.code() == absl::StatusCode::kNotFound);
  CHECK(unknown.snapshot_id == "s");
  CHECK(unknown.state.model_id == "gone");
  CHECK(worker.core.counters().snapshot_failures == 1);

  worker.recovery_jobs.max_waiting = 0;
  for (int i = 0; i < 3; ++i) {
    worker.core.Apply(SnapshotOf("m", "s"));
    CHECK(Only<SnapshotDone>(worker.Drain()).status.code() == absl::StatusCode::kResourceExhausted);
  }
  worker.recovery_jobs.max_waiting = 1000;
  const SnapshotDone done = TakeSnapshot(worker, "m", "s");
  CHECK(worker.core.counters().snapshot_failures == 4);
  CHECK(worker.core.counters().snapshots == 1);
  CHECK(worker.core.counters().snapshot_time == done.write_time);
}

// While it lives, writes beyond `bytes` of a file fail.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("a snapshot that the disk does not take is reported, and training continues",
          "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  worker.core.Apply(SnapshotOf("m", "s"));
  while (worker.core.RunUnit()) {
  }
  SnapshotDone failed;
  {
    const FileSizeLimit limit(3000);
    worker.RunRecoveryJob();
    failed = Only<SnapshotDone>(worker.core.TakeReports());
  }
  CHECK_FALSE(failed.status.ok());
  CHECK_FALSE(std::filesystem::exists(worker.dir / "s"));
  CHECK(std::filesystem::is_empty(worker.dir / "tmp"));
  worker.core.Apply(Step("m", 7, 4, kWindow));
  Answer<StepDone>(worker.Drain(), "m:7");
  CHECK(TakeSnapshot(worker, "m", "s").state.applied_seq == 7);
}

TEST_CASE("only a whole snapshot of this model and base is restored", "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  TakeSnapshot(worker, "m", "s");
  const Files expected = StateOf(worker, "m");
  CHECK_THAT(std::string(TryRestore(worker, "n", "s").status().message()),
             Catch::Contains("manifest.json: model_id is m, wanted is n"));
  CHECK(TryRestore(worker, "m", "none").status().code() == absl::StatusCode::kNotFound);
  CHECK(TryRestore(worker, "m", "../s").status().code() == absl::StatusCode::kInvalidArgument);
  worker.core.Apply(
      SaveCheckpoint{.request_id = "save", .model_id = "m", .dir = "saved", .manifest_json = "{}"});
  worker.Drain();
  worker.NextSave();
  CHECK_THAT(std::string(TryRestore(worker, "m", "saved").status().message()),
             Catch::Contains("is no snapshot"));
  worker.core.Apply(LoadAdapter{"load", "m", 7, "s", true});
  CHECK(Answer<OpFailed>(worker.Drain(), "load").status.message() ==
        "checkpoint is of kind snapshot, it is to be restored");

  std::filesystem::resize_file(worker.dir / "s/gradient.safetensors", 3000);
  const absl::Status damaged = TryRestore(worker, "m", "s").status();
  CHECK(damaged.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(damaged.message()), Catch::Contains("gradient.safetensors: size is 3000"));
  // The model has not changed.
  CheckSame(StateOf(worker, "m"), expected);
}

TEST_CASE("a model that memory cannot hold is not restored", "[snapshots]") {
  Worker worker;
  TakeSnapshot(worker, "m", "s");
  const int64_t num_parameters =
      Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 2}, at::kCPU).num_parameters();
  Worker small({.model_ops = {.adapter_bytes = 40 * num_parameters}});
  CopyDir(worker, small, "s");
  CHECK(TryRestore(small, "m", "s").status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("the writing thread answers every snapshot, in order", "[snapshots]") {
  Worker worker;
  TrainSome(worker, /*has_window=*/true);
  worker.core.Apply(SnapshotOf("m", "a"));
  worker.core.Apply(SnapshotOf("m", "b"));
  while (worker.core.RunUnit()) {
  }
  const RecoveryFiles files(worker.store);
  BoundedQueue<RecoveryJobDone> done(16);
  RecoveryThread thread(files, [&](RecoveryJobDone one) { done.Push(std::move(one)); });
  for (RecoveryJob& job : worker.recovery_jobs.waiting) REQUIRE(thread.Enqueue(job).ok());
  for (const char* id : {"a", "b"}) {
    const RecoveryJobDone one = *done.Pop();
    const auto& report = std::get<SnapshotDone>(one.report);
    CHECK(report.snapshot_id == id);
    CHECK(report.status.ok());
    CHECK(one.generation == 3);
    CHECK(one.buffer.defined());
  }
}

}  // namespace
}  // namespace lathe::worker
