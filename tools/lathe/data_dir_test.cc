#include "tools/lathe/data_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

mode_t ModeOf(const std::filesystem::path& path) {
  struct stat info {};
  stat(path.c_str(), &info);
  return info.st_mode & 0777;
}

TEST_CASE("A data directory is created for its owner alone", "[data_dir]") {
  const TempDir temp;
  const DataDir dir(temp.path() / "a" / "b");
  REQUIRE(dir.Create() == absl::OkStatus());
  CHECK(ModeOf(dir.path()) == 0700);
  CHECK(ModeOf(dir.path() / "checkpoints") == 0700);
  CHECK(ModeOf(dir.run() / "secret") == 0600);
  CHECK(dir.SocketAddress("admin") == "unix:" + (dir.run() / "admin.sock").string());
}

TEST_CASE("The workers' secret outlives a second start", "[data_dir]") {
  const TempDir temp;
  const DataDir dir(temp.path());
  REQUIRE(dir.Create().ok());
  const std::string secret = *ReadTextFile(dir.run() / "secret");
  CHECK(secret.size() == 64);
  REQUIRE(dir.Create().ok());
  CHECK(*ReadTextFile(dir.run() / "secret") == secret);
}

TEST_CASE("The workers' secret outlives a socket folder that was emptied", "[data_dir]") {
  const TempDir temp;
  const DataDir dir(temp.path() / "data", temp.path() / "run");
  REQUIRE(dir.Create().ok());
  const std::string secret = *ReadTextFile(dir.socket_dir() / "secret");
  std::filesystem::remove_all(dir.socket_dir());
  REQUIRE(dir.Create().ok());
  CHECK(*ReadTextFile(dir.socket_dir() / "secret") == secret);
}

TEST_CASE("Sockets move to a short path when the directory's is long", "[data_dir]") {
  const TempDir temp;
  const DataDir dir(temp.path() / std::string(100, 'x'));
  CHECK(dir.has_own_socket_dir());
  REQUIRE(dir.Create().ok());
  CHECK(dir.SocketAddress("engine").size() < 100);
  CHECK(ModeOf(dir.socket_dir()) == 0700);
  CHECK(ModeOf(dir.socket_dir() / "secret") == 0600);
  CHECK(DataDir(dir.path()).socket_dir() == dir.socket_dir());
  std::filesystem::remove_all(dir.socket_dir());
}

TEST_CASE("A directory in use names the process that holds it", "[data_dir]") {
  const TempDir temp;
  const DataDir dir(temp.path());
  REQUIRE(dir.Create().ok());
  {
    const auto lock = DataDirLock::Take(dir);
    REQUIRE(lock.ok());
    const auto second = DataDirLock::Take(dir);
    CHECK(ErrorCode(second.status()) == "data_dir_in_use");
    CHECK(absl::StrContains(second.status().message(), "process " + std::to_string(getpid())));
    CHECK(ExitCodeOf(second.status()) == 73);
  }
  CHECK(DataDirLock::Take(dir).ok());
}

TEST_CASE("A file in the way cannot become a directory", "[data_dir]") {
  const TempDir temp;
  temp.Write("file", "");
  const absl::Status status = DataDir(temp.path() / "file").Create();
  CHECK(ErrorCode(status) == "cannot_create");
  CHECK(ExitCodeOf(status) == 73);
}

TEST_CASE("A file is replaced as a whole", "[data_dir]") {
  const TempDir temp;
  const auto path = temp.Write("key", "old and long\n");
  REQUIRE(WriteFileAtomically(path, "new\n", 0600).ok());
  CHECK(*ReadTextFile(path) == "new");
  CHECK(ModeOf(path) == 0600);
}

}  // namespace
}  // namespace lathe::cli
