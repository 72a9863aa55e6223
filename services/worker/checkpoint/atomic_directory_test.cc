#include "services/worker/checkpoint/atomic_directory.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

// The system call behind rename().
#ifdef SYS_rename
constexpr int kRenameCall = SYS_rename;
#else
constexpr int kRenameCall = SYS_renameat;
#endif

// Makes every system call `number` of this thread fail with `error` from now on.
bool RefuseCall(int number, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs `work` on a thread whose system call `number` fails with `error`.
void RunWithout(int number, int error, const std::function<void()>& work) {
  bool is_refused = false;
  std::thread([&] {
    is_refused = RefuseCall(number, error);
    if (is_refused) work();
  }).join();
  REQUIRE(is_refused);
}

// Commits a directory with one file.
absl::Status CommitFile(const TempDir& store, const std::string& name, const std::string& content) {
  absl::StatusOr<AtomicDirectory> attempt = AtomicDirectory::Create(store.path());
  if (!attempt.ok()) return attempt.status();
  std::ofstream(attempt->path() / "file") << content;
  return attempt->Commit(store / name);
}

TEST_CASE("AtomicDirectory: a directory is replaced without a rename that frees its name",
          "[checkpoint]") {
  const TempDir store;
  REQUIRE(CommitFile(store, "a", "old").ok());
  absl::Status replaced;
  absl::Status created;
  RunWithout(kRenameCall, EIO, [&] {
    replaced = CommitFile(store, "a", "new");
    created = CommitFile(store, "b", "");
  });
  CHECK(replaced.ok());
  CHECK(created.code() == absl::StatusCode::kInternal);  // renames did fail
  CHECK(ReadText(store / "a/file") == "new");
  CHECK(std::filesystem::is_empty(store / "tmp"));
}

TEST_CASE("AtomicDirectory: a directory is replaced where names cannot be exchanged",
          "[checkpoint]") {
  const int error = GENERATE(EINVAL, ENOSYS);
  const TempDir store;
  REQUIRE(CommitFile(store, "a", "old").ok());
  absl::Status replaced;
  RunWithout(SYS_renameat2, error, [&] { replaced = CommitFile(store, "a", "new"); });
  CHECK(replaced.ok());
  CHECK(ReadText(store / "a/file") == "new");
  CHECK(std::filesystem::is_empty(store / "tmp"));
}

TEST_CASE("AtomicDirectory: another error of the exchange leaves the old directory",
          "[checkpoint]") {
  const TempDir store;
  REQUIRE(CommitFile(store, "a", "old").ok());
  absl::Status refused;
  RunWithout(SYS_renameat2, EIO, [&] { refused = CommitFile(store, "a", "new"); });
  CHECK(refused.code() == absl::StatusCode::kInternal);
  CHECK(ReadText(store / "a/file") == "old");
  CHECK(std::filesystem::is_empty(store / "tmp"));
}

}  // namespace
}  // namespace lathe::worker
