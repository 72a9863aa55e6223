#include "services/engine/store/data_dir_lock.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"

#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

TEST_CASE("DataDirLock: the error names the process that holds the directory", "[store]") {
  const TempDir dir;
  const absl::StatusOr<DataDirLock> first = DataDirLock::Take(dir.path());
  REQUIRE(first.ok());
  const absl::StatusOr<DataDirLock> second = DataDirLock::Take(dir.path());
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(second.status().message()),
             Catch::Contains("in use by process " + std::to_string(getpid())));
}

TEST_CASE("DataDirLock: it waits for a holder that ends", "[store]") {
  const TempDir dir;
  absl::StatusOr<DataDirLock> first = DataDirLock::Take(dir.path());
  REQUIRE(first.ok());
  std::thread holder([lock = *std::move(first)]() mutable {
    absl::SleepFor(absl::Milliseconds(200));
    const DataDirLock ends = std::move(lock);
  });
  CHECK(DataDirLock::Take(dir.path(), absl::Seconds(60)).ok());
  holder.join();
}

TEST_CASE("DataDirLock: the directory is free again after the holder is gone", "[store]") {
  const TempDir dir;
  {
    const absl::StatusOr<DataDirLock> first = DataDirLock::Take(dir.path() / "made");
    REQUIRE(first.ok());
  }
  CHECK(DataDirLock::Take(dir.path() / "made").ok());
}

}  // namespace
}  // namespace lathe::engine
