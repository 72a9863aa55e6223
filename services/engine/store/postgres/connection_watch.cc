#include "services/engine/store/postgres/connection_watch.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "libs/common/time/clock.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);
// Extra time that the server gets after each part of a large result.
constexpr absl::Duration kProgress = absl::Seconds(1);
constexpr int64_t kNotCounted = -1;

// Number of bytes that a TCP socket has received; 0 for a unix socket, whose server is near.
int64_t NumReceived(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

// Returns true if an answer has come that the caller has not read yet.
bool HasAnswer(int fd) {
  int num_unread = 0;
  return ioctl(fd, FIONREAD, &num_unread) == 0 && num_unread > 0;
}

}  // namespace

ConnectionWatch::Socket::Socket(ConnectionWatch& watch, int fd) : watch_(watch), fd_(fd) {
  absl::MutexLock lock(&watch_.mu_);
  watch_.sockets_.insert(this);
}

ConnectionWatch::Socket::~Socket() {
  absl::MutexLock lock(&watch_.mu_);
  watch_.sockets_.erase(this);
}

void ConnectionWatch::Socket::BeginCall(absl::Time deadline, absl::Time latest) {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&watch_.mu_);
  is_called_ = true;
  began_ = now;
  deadline_ = std::min(deadline, latest);
  latest_ = latest;
  num_received_ = kNotCounted;
}

void ConnectionWatch::Socket::EndCall() {
  absl::MutexLock lock(&watch_.mu_);
  is_called_ = false;
}

std::string ConnectionWatch::Socket::reason() const {
  absl::MutexLock lock(&watch_.mu_);
  return reason_;
}

ConnectionWatch::ConnectionWatch() : task_("postgres-watch", kPeriod, [this] { Look(); }) {}

absl::Duration ConnectionWatch::period() { return kPeriod; }

void ConnectionWatch::Look() {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  for (Socket* const socket : sockets_) {
    if (!socket->is_called_ || !socket->reason_.empty()) continue;
    socket->reason_ = LookAtLocked(*socket, now);
    if (!socket->reason_.empty()) shutdown(socket->fd_, SHUT_RDWR);
  }
}

std::string ConnectionWatch::LookAtLocked(Socket& socket, absl::Time now) {
  // A server that answers at once is still used: the leader gives its lease back.
  const bool is_late = given_up_ && now - socket.began_ >= kPeriod;
  if ((is_late || now >= socket.deadline_) && HasAnswer(socket.fd_)) return "";
  if (is_late) return "the engine stops";
  if (socket.num_received_ == kNotCounted) socket.num_received_ = NumReceived(socket.fd_);
  if (now < socket.deadline_) return "";
  const int64_t num_received = NumReceived(socket.fd_);
  if (num_received == socket.num_received_ || now >= socket.latest_) {
    return "no answer from the server";
  }
  socket.num_received_ = num_received;
  socket.deadline_ = std::min(now + kProgress, socket.latest_);
  return "";
}

}  // namespace lathe::engine
