#include "services/worker/collectives/rendezvous/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace lathe::worker {
namespace {

// Returns false if `fd` is not a TCP socket, as only TCP has this option. Unacknowledged and unsent
// data count as silence, like unanswered probes.
bool LimitSilence(int fd, int milliseconds) {
  return setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds)) == 0;
}

void SendProbes(int fd, int interval_seconds) {
  const int yes = 1, num_probes = 3;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval_seconds, sizeof(interval_seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof(interval_seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &num_probes, sizeof(num_probes));
}

}  // namespace

void KeepConnectionsAlive(absl::Duration silence) {
  const int seconds = static_cast<int>(absl::ToInt64Seconds(silence));
  std::error_code error;  // without /proc no socket is changed, and losses are detected later
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (LimitSilence(fd, 1000 * seconds)) SendProbes(fd, std::max(1, seconds / 3));
  }
}

}  // namespace lathe::worker
