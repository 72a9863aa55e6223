#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "services/worker/testing/snapshot_test_tools.h"

namespace lathe::worker {
namespace {

SaveCheckpoint SaveTo(const std::string& dir, const std::string& model_id,
                      CheckpointKind kind = CheckpointKind::kTraining) {
  return {.request_id = dir,
          .model_id = model_id,
          .kind = kind,
          .dir = dir,
          .manifest_json = "{}",
          .age_recipients = {}};
}

int64_t NumParameters() {
  return Adapter(WholeModel(SmallSpec()), LoraSpec{.rank = 4}, at::kCPU).num_parameters();
}

// Memory of a training save of a model of rank 4: weights and two moments.
int64_t BytesOfTraining() { return 12 * NumParameters(); }
int64_t BytesOfSampler() { return 4 * NumParameters(); }

void AddModel(Worker& worker, const std::string& model_id) {
  worker.core.Apply(CreateAdapter{"create", model_id, {.rank = 4, .seed = 2}});
  worker.Drain();
}

void CheckSaved(const ReportEvent& event, const std::string& request_id) {
  const auto* done = std::get_if<SaveDone>(&event.report);
  REQUIRE(done != nullptr);
  CHECK(done->request_id == request_id);
}

bool IsAnswered(const std::vector<ReportEvent>& reports, const std::string& request_id) {
  for (const ReportEvent& event : reports) {
    const auto* done = std::get_if<StepDone>(&event.report);
    if (done != nullptr && done->request_id == request_id) return true;
  }
  return false;
}

TEST_CASE("a save without room waits with its model, and other models go on", "[saves]") {
  Worker worker({.model_ops = {.save_bytes = BytesOfTraining()}});
  AddModel(worker, "n");
  worker.core.Apply(SaveTo("a", "m"));
  worker.core.Apply(SaveTo("b", "n"));
  worker.core.Apply(Step("n", 2, 0, {}));
  worker.core.Apply(Step("m", 2, 0, {}));
  worker.core.Apply(Sample("sample", ""));
  const auto reports = worker.Drain();
  CHECK(IsAnswered(reports, "m:2"));
  Answer<SampleDone>(reports, "sample");
  CHECK_FALSE(IsAnswered(reports, "n:2"));
  CHECK(worker.writer.staged_bytes() == BytesOfTraining());
  CHECK(worker.core.memory_in_use().saves == BytesOfTraining());

  CheckSaved(worker.NextSave(), "a");
  CHECK(worker.core.memory_in_use().saves == 0);
  CHECK(IsAnswered(worker.Drain(), "n:2"));
  CheckSaved(worker.NextSave(), "b");
  CHECK(ReadManifest(worker.dir / "b")->applied_seq == 0);  // the state before the step
}

TEST_CASE("a save larger than the room for saves is staged alone", "[saves]") {
  Worker worker({.model_ops = {.save_bytes = 1}});
  AddModel(worker, "n");
  worker.core.Apply(SaveTo("a", "m"));
  worker.core.Apply(SaveTo("b", "n"));
  for (const char* dir : {"a", "b"}) {
    worker.Drain();
    REQUIRE(worker.writer.staged_bytes() == BytesOfTraining());
    CheckSaved(worker.NextSave(), dir);
  }
  CHECK(worker.writer.staged_bytes() == 0);
}

TEST_CASE("saves get room in the order in which they asked for it", "[saves]") {
  Worker worker({.model_ops = {.save_bytes = BytesOfTraining() + BytesOfSampler()}});
  AddModel(worker, "k");
  AddModel(worker, "n");
  worker.core.Apply(SaveTo("a", "m"));
  worker.core.Apply(SaveTo("b", "n"));
  worker.Drain();
  REQUIRE(worker.writer.staged_bytes() == BytesOfTraining());
  // A smaller save would fit, but does not overtake the one that waits.
  worker.core.Apply(SaveTo("c", "k", CheckpointKind::kSampler));
  worker.Drain();
  CHECK(worker.writer.staged_bytes() == BytesOfTraining());
  CheckSaved(worker.NextSave(), "a");
  worker.Drain();
  CHECK(worker.writer.staged_bytes() == BytesOfTraining() + BytesOfSampler());
  CheckSaved(worker.NextSave(), "b");
  CheckSaved(worker.NextSave(), "c");
}

TEST_CASE("saves that a Reset has left behind still take room", "[saves]") {
  const CoreOptions options{.model_ops = {.save_bytes = BytesOfTraining()}};
  Worker worker(options);
  worker.core.Apply(SaveTo("a", "m"));
  worker.Drain();
  ExecutorCore next(worker.parts, options, /*generation=*/4);
  next.Apply(CreateAdapter{"create", "n", {.rank = 4, .seed = 2}});
  next.Apply(SaveTo("b", "n"));
  while (next.RunUnit()) {
  }
  CHECK(worker.writer.staged_bytes() == BytesOfTraining());
  worker.saves.Pop();
  next.Apply(*worker.written.Pop());
  CHECK(worker.writer.staged_bytes() == 0);
  while (next.RunUnit()) {
  }
  CheckSaved(worker.NextSave(), "b");
}

TEST_CASE("while a save is staged, commands are taken and samples go on", "[saves]") {
  Worker worker, undisturbed;
  for (Worker* each : {&worker, &undisturbed}) {
    each->Apply({Train("m", 1)});
    each->core.Apply(Step("m", 2, 0, {1}));
    each->Drain();
  }
  undisturbed.core.Apply(SaveTo("s", "m"));
  undisturbed.Drain();
  CheckSaved(undisturbed.NextSave(), "s");

  worker.core.Apply(Sample("sample", ""));
  worker.core.Apply(SaveTo("s", "m"));
  int num_yields = 0;
  int64_t num_tokens = 0;  // sampled before the copy was complete
  worker.core.RunUnit([&] {
    if (num_yields++ == 0) worker.core.Apply(Step("m", 3, 2, {}));
    worker.clock.Advance(absl::Seconds(1));
    if (worker.writer.staged_bytes() == 0) num_tokens = worker.core.counters().generated_tokens;
  });
  CHECK(num_yields >= 2);
  CHECK(num_tokens > 0);
  const auto reports = worker.Drain();
  CHECK(IsAnswered(reports, "m:3"));
  Answer<SampleDone>(reports, "sample");
  CheckSaved(worker.NextSave(), "s");
  CheckSame(ReadFiles(worker.dir / "s"), ReadFiles(undisturbed.dir / "s"));
}

TEST_CASE("a model whose save has no room in the plan is refused", "[saves]") {
  // The model takes 20 bytes for each parameter, the staging of a snapshot 16, a save 12.
  const int64_t size = NumParameters();
  const auto has_model = [](const ModelOpsOptions& options) {
    return !Worker({.model_ops = options}).core.ModelStates().empty();
  };
  CHECK(has_model({.adapter_bytes = 48 * size, .save_bytes = 0}));
  CHECK_FALSE(has_model({.adapter_bytes = 48 * size - 1, .save_bytes = 0}));
  CHECK(has_model({.adapter_bytes = 40 * size, .save_bytes = 8 * size}));
  CHECK_FALSE(has_model({.adapter_bytes = 40 * size - 1, .save_bytes = 8 * size}));
  CHECK(has_model({.adapter_bytes = 36 * size, .save_bytes = 12 * size}));
}

}  // namespace
}  // namespace lathe::worker
