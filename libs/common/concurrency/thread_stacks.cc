#include "libs/common/concurrency/thread_stacks.h"

#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace lathe {
namespace {

constexpr int kMaxFrames = 64;
constexpr auto kLongestWait = std::chrono::seconds(1);

// Globals, because a signal handler can get its arguments in no other way.
std::atomic<int> output_fd = -1;
std::atomic<bool> is_written = false;

void WriteOwnStack(int) {
  const int saved_errno = errno;
  std::array<void*, kMaxFrames> frames;
  const int num_frames = backtrace(frames.data(), kMaxFrames);
  backtrace_symbols_fd(frames.data(), num_frames, output_fd);
  is_written = true;
  errno = saved_errno;
}

void WriteText(int fd, const std::string& text) {
  if (write(fd, text.data(), text.size()) < 0) return;  // there is no other place to report it
}

std::string NameOf(const std::filesystem::path& task) {
  std::ifstream file(task / "comm");
  std::string name;
  std::getline(file, name);
  return name;
}

void AskThread(pid_t thread_id, int fd) {
  is_written = false;
  if (syscall(SYS_tgkill, getpid(), thread_id, StackSignal()) != 0) return;
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (!is_written && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!is_written) WriteText(fd, "does not answer\n");
}

}  // namespace

void WriteThreadStacks(int fd) {
  output_fd = fd;
  // The first call of backtrace loads a library, which a signal handler must not do.
  std::array<void*, 1> ignored;
  backtrace(ignored.data(), 1);
  struct sigaction action = {};
  action.sa_handler = WriteOwnStack;
  action.sa_flags = SA_RESTART;
  sigaction(StackSignal(), &action, nullptr);
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string thread_id = task.path().filename().string();
    WriteText(fd, "thread " + thread_id + " " + NameOf(task.path()) + "\n");
    AskThread(static_cast<pid_t>(std::atoi(thread_id.c_str())), fd);
  }
}

}  // namespace lathe
