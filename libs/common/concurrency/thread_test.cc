#include <pthread.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/synchronization/notification.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {
namespace {

TEST_CASE("A named thread bears its name and leaves signals to the main thread", "[thread]") {
  char name[16] = "";
  sigset_t blocked;
  {
    NamedThread thread("a-name-that-is-too-long", [&] {
      pthread_getname_np(pthread_self(), name, sizeof(name));
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    });
  }
  CHECK(std::string(name) == "a-name-that-is-");
  CHECK(sigismember(&blocked, SIGTERM) == 1);
}

TEST_CASE("A periodic task runs again and again until it is destroyed", "[thread]") {
  int calls = 0;
  absl::Notification three;
  {
    PeriodicTask task("counter", absl::Milliseconds(1), [&] {
      if (++calls == 3) three.Notify();
    });
    three.WaitForNotification();
  }
  CHECK(calls >= 3);
}

TEST_CASE("Destroying a periodic task does not wait for its period", "[thread]") {
  int calls = 0;
  {
    PeriodicTask task("sleeper", absl::Hours(24), [&] { ++calls; });
  }
  CHECK(calls == 0);
}

}  // namespace
}  // namespace lathe
