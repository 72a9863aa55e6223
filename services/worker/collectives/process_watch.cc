#include "services/worker/collectives/process_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lathe::worker {

ProcessWatch::ProcessWatch(std::function<void(int)> on_end)
    : on_end_(std::move(on_end)), stop_fd_(eventfd(0, EFD_CLOEXEC)) {}

ProcessWatch::~ProcessWatch() {
  if (stop_fd_ >= 0) eventfd_write(stop_fd_, 1);
  thread_.reset();
  for (const Process& process : processes_) close(process.fd);
  if (stop_fd_ >= 0) close(stop_fd_);
}

bool ProcessWatch::Add(int number, pid_t pid) {
  if (stop_fd_ < 0) return false;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return false;
  processes_.push_back({number, fd});
  return true;
}

void ProcessWatch::Start() {
  if (!processes_.empty()) thread_.emplace("rank-watch", [this] { Run(); });
}

void ProcessWatch::Run() {
  while (true) {
    std::vector<pollfd> awaited = {{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    for (const Process& process : processes_) {
      awaited.push_back({.fd = process.fd, .events = POLLIN, .revents = 0});
    }
    if (poll(awaited.data(), awaited.size(), /*timeout=*/-1) < 0 && errno != EINTR) return;
    if (awaited[0].revents != 0) return;
    std::vector<Process> alive;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (awaited[i + 1].revents == 0) {
        alive.push_back(processes_[i]);
        continue;
      }
      close(processes_[i].fd);
      on_end_(processes_[i].number);
    }
    processes_ = std::move(alive);
  }
}

}  // namespace lathe::worker
