#include "services/worker/executor/executor.h"
#include "services/worker/torch/aten.h"

#include <catch2/catch.hpp>

#include <thread>

#include "absl/synchronization/notification.h"
#include "services/worker/executor/startup/loaded_base.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/testing/test_model_folder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

TEST_CASE("a folder that is no model is reported and nothing else happens", "[executor]") {
  absl::Notification failed;
  absl::Status status;
  Executor executor({.model_name = "none", .model_path = "/nonexistent", .device = "cpu"},
                    {.on_report = [](ReportEvent) { FAIL("a report without a model"); },
                     .on_state_changed = [] {}},
                    [&](absl::Status error) {
                      status = std::move(error);
                      failed.Notify();
                    });
  executor.Start();
  failed.WaitForNotification();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(executor.State().ready);
  executor.Stop();
}

TEST_CASE("ChooseDevice: a refusal says why there is no GPU", "[executor]") {
  CHECK(ChooseDevice("cpu").value() == at::Device(at::kCPU));
  CHECK(ChooseDevice("tpu").status().message() == "device is tpu, want auto, cpu or cuda");
  if (at::hasCUDA()) return;
  CHECK(ChooseDevice("auto").value() == at::Device(at::kCPU));
  CHECK_THAT(std::string(ChooseDevice("cuda").status().message()),
             Catch::StartsWith("device is cuda, and there is no GPU: "));
}

TEST_CASE("without work, memory kept for tensors to come goes back to the system", "[executor]") {
  UseBlockCacheForTensors();
  const TempDir folder;
  WriteModelFolder(folder.path());
  absl::Notification ready, reported;
  size_t kept_bytes = 0;
  Executor* running = nullptr;
  Executor executor({.model_name = "tiny",
                     .model_path = folder.path(),
                     .checkpoint_root = folder.path() / "checkpoints",
                     .device = "cpu",
                     .num_threads = 1,
                     .memory_fraction = 0.05,
                     .pause = absl::Milliseconds(1)},
                    {.on_report =
                         [&](ReportEvent) {
                           // Runs on the executor's thread, so no idle pause has begun yet.
                           at::empty({int64_t{8} << 20}, at::kByte);
                           kept_bytes = UnusedTensorMemoryBytes();
                           reported.Notify();
                         },
                     .on_state_changed =
                         [&] {
                           if (running->State().ready && !ready.HasBeenNotified()) ready.Notify();
                         }},
                    [](absl::Status error) { FAIL(error); });
  running = &executor;
  executor.Start();
  ready.WaitForNotification();
  CHECK((executor.State().model.lora_modules == DenseLoraModules()));
  REQUIRE(executor.Submit(CreateAdapter{.request_id = "r", .model_id = "m"}, {}).ok());
  reported.WaitForNotification();
  CHECK(kept_bytes >= size_t{8} << 20);
  while (UnusedTensorMemoryBytes() > 0) std::this_thread::yield();
  executor.Stop();
}

int64_t BytesOfSaves(const Executor& executor) {
  for (const MemoryShare& share : executor.State().memory.shares) {
    if (share.owner == "saves") return share.used;
  }
  return 0;
}

TEST_CASE("the executor learns when a save no longer takes memory", "[executor]") {
  const TempDir folder;
  WriteModelFolder(folder.path());
  absl::Notification saved;
  Executor* running = nullptr;
  Executor executor({.model_name = "tiny",
                     .model_path = folder.path(),
                     .checkpoint_root = folder.path() / "checkpoints",
                     .device = "cpu",
                     .num_threads = 1,
                     .memory_fraction = 0.05},
                    {.on_report =
                         [&](const ReportEvent& event) {
                           if (!std::holds_alternative<SaveDone>(event.report)) return;
                           // The executor's thread has counted the save and publishes that soon.
                           while (BytesOfSaves(*running) == 0) std::this_thread::yield();
                           saved.Notify();
                         },
                     .on_state_changed = [] {}},
                    [](absl::Status error) { FAIL(error); });
  running = &executor;
  executor.Start();
  REQUIRE(executor.Submit(CreateAdapter{.request_id = "r", .model_id = "m"}, {}).ok());
  REQUIRE(
      executor
          .Submit(
              SaveCheckpoint{.request_id = "s", .model_id = "m", .dir = "s", .manifest_json = "{}"},
              {})
          .ok());
  saved.WaitForNotification();
  while (BytesOfSaves(executor) > 0) std::this_thread::yield();
  executor.Stop();
}

TEST_CASE("commands after the stop are cancelled", "[executor]") {
  Executor executor({}, {}, [](absl::Status) {});
  executor.Stop();
  CHECK(executor.Submit(DropVersion{"a"}, {}).code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a full command queue refuses, naming its limit", "[executor]") {
  Executor executor({.max_queued_commands = 2}, {}, [](absl::Status) {});
  CHECK(executor.Submit(DropVersion{"a"}, {}).ok());
  CHECK(executor.Submit(DropVersion{"b"}, {}).ok());
  CHECK(executor.Submit(DropVersion{"c"}, {}).message() ==
        "command queue holds 2 commands, limit is 2");
}

}  // namespace
}  // namespace lathe::worker
