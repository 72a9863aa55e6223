#include "services/worker/executor/executor.h"

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"

namespace lathe::worker {
namespace {

TEST_CASE("a folder that is no model is told and nothing else happens", "[executor]") {
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

TEST_CASE("a full command queue refuses, naming its limit", "[executor]") {
  Executor executor({.max_queued_commands = 2}, {}, [](absl::Status) {});
  CHECK(executor.Submit(DropVersion{"a"}).ok());
  CHECK(executor.Submit(DropVersion{"b"}).ok());
  CHECK(executor.Submit(DropVersion{"c"}).message() ==
        "command queue holds 2 commands, limit is 2");
}

}  // namespace
}  // namespace lathe::worker
