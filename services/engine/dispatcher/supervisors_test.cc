#include "services/engine/dispatcher/supervisors.h"

#include <signal.h>

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

v1::RankExited BySignal(int64_t signal) {
  v1::RankExited exited;
  exited.set_signal(signal);
  return exited;
}

v1::RankExited ByCode(int64_t exit_code) {
  v1::RankExited exited;
  exited.set_exit_code(exit_code);
  return exited;
}

TEST_CASE("Supervisors: a signal of its own is a crash", "[dispatcher]") {
  const int signal = GENERATE(SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL);
  CHECK(CauseOf(BySignal(signal)) == LossCause::kCrashed);
}

TEST_CASE("Supervisors: a process that is killed from outside has not crashed", "[dispatcher]") {
  const int signal = GENERATE(SIGKILL, SIGTERM, SIGINT);
  CHECK(CauseOf(BySignal(signal)) == LossCause::kKilled);
}

TEST_CASE("Supervisors: a kill for memory is distinguished from others", "[dispatcher]") {
  v1::RankExited exited = BySignal(SIGKILL);
  exited.set_is_out_of_memory(true);
  CHECK(CauseOf(exited) == LossCause::kOutOfMemory);
  CHECK(DescribeEnd(exited) == "signal 9, the machine was out of memory");
}

TEST_CASE("Supervisors: an end that was asked for is no death", "[dispatcher]") {
  v1::RankExited exited = GENERATE(BySignal(SIGKILL), BySignal(SIGTERM), ByCode(1));
  exited.set_was_asked(true);
  CHECK(CauseOf(exited) == LossCause::kEnded);
}

TEST_CASE("Supervisors: a process that crashes when it is asked to end has crashed",
          "[dispatcher]") {
  v1::RankExited exited = BySignal(SIGSEGV);
  exited.set_was_asked(true);
  CHECK(CauseOf(exited) == LossCause::kCrashed);
}

TEST_CASE("Supervisors: a process that exits on request has not crashed", "[dispatcher]") {
  const int orderly = GENERATE(0, 75);
  CHECK(CauseOf(ByCode(orderly)) == LossCause::kEnded);
  CHECK(CauseOf(ByCode(1)) == LossCause::kCrashed);
  CHECK(CauseOf(ByCode(78)) == LossCause::kCrashed);
  CHECK(CauseOf(ByCode(76)) == LossCause::kPeerGone);
  CHECK(DescribeEnd(ByCode(1)) == "exit code 1");
}

}  // namespace
}  // namespace lathe::engine
