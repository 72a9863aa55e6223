#include "libs/common/concurrency/thread_stacks.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "absl/synchronization/notification.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {
namespace {

// The thread sanitizer delays signals until a sleeping thread wakes.
#ifndef __SANITIZE_THREAD__
TEST_CASE("WriteThreadStacks: a thread that waits is shown by name with its frames",
          "[concurrency]") {
  absl::Notification begin_sleep;
  absl::Notification end;
  NamedThread thread("sleeper", [&] {
    begin_sleep.Notify();
    end.WaitForNotification();
  });
  begin_sleep.WaitForNotification();
  std::FILE* file = std::tmpfile();
  WriteThreadStacks(fileno(file));
  end.Notify();
  std::string text;
  text.resize(static_cast<size_t>(lseek(fileno(file), 0, SEEK_CUR)));
  REQUIRE(pread(fileno(file), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::fclose(file);
  const size_t begin = text.find(" sleeper\n");
  REQUIRE(begin != std::string::npos);
  const std::string stack = text.substr(begin, text.find("\nthread ", begin) - begin);
  CAPTURE(text);
  CHECK(stack.find("[0x") != std::string::npos);
  CHECK(stack.find("does not answer") == std::string::npos);
}
#endif

}  // namespace
}  // namespace lathe
