#include "libs/common/logging/log_level.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "libs/common/logging/logging.h"

namespace lathe {
namespace {

// Fixture: a file of --config with one level, and the level of the process as before.
struct LevelFile {
  char path[32] = "/tmp/lathe-level-XXXXXX";
  const std::string before{LogLevel()};

  LevelFile() { close(mkstemp(path)); }
  ~LevelFile() {
    unlink(path);
    SetLogLevel(before);
  }
  void Write(const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }
};

// Returns false if the level is another one after 20 s.
bool WaitForLevel(std::string_view level) {
  for (int i = 0; i < 2000 && LogLevel() != level; ++i) absl::SleepFor(absl::Milliseconds(10));
  return LogLevel() == level;
}

TEST_CASE("SIGHUP reads the log level again", "[log_level]") {
  LevelFile file;
  file.Write("log: {level: info}\ngateway: {listen: \"127.0.0.1:1\"}\n");
  LogLevelReload reload(file.path);
  file.Write("log: {level: error}\ngateway: {listen: \"127.0.0.1:1\"}\n");
  kill(getpid(), SIGHUP);
  CHECK(WaitForLevel("error"));
}

TEST_CASE("A level that does not exist leaves the level as it is", "[log_level]") {
  LevelFile file;
  LogLevelReload reload(file.path);
  file.Write("log: {level: debug}\n");
  kill(getpid(), SIGHUP);
  REQUIRE(WaitForLevel("debug"));
  file.Write("log: {level: shout}\n");
  kill(getpid(), SIGHUP);
  file.Write("log: {level: warn}\n");
  kill(getpid(), SIGHUP);
  CHECK(WaitForLevel("warn"));
}

}  // namespace
}  // namespace lathe
