#include "services/engine/store/postgres/connection_policy.h"

#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/time/clock.h"

namespace lathe::engine {
namespace {

// Silence of the server, beyond its own time-outs, after which the connection counts as lost.
constexpr absl::Duration kSilence = absl::Seconds(5);

[[noreturn]] void ThrowLost(const PGconn* connection, const char* what) {
  throw pqxx::broken_connection(absl::StrCat(what, ": ", PQerrorMessage(connection)));
}

int64_t Milliseconds(absl::Duration duration) { return absl::ToInt64Milliseconds(duration); }

}  // namespace

ConnectionPolicy::handle ConnectionPolicy::do_startconnect(handle connected) {
  if (connected != nullptr) return connected;
  // The URL comes last, so its parameters override the ones above it.
  const std::array<const char*, 5> names = {"application_name", "tcp_user_timeout",
                                            "keepalives_idle", "dbname", nullptr};
  const std::array<const char*, 5> values = {"lathe-engine", "15000", "5", options_.url.c_str(),
                                             nullptr};
  handle_ = PQconnectStartParams(names.data(), values.data(), /*expand_dbname=*/1);
  try {
    Await(handle_);
  } catch (const pqxx::broken_connection&) {
    do_disconnect(handle_);
    throw;
  }
  if (options_.watch != nullptr) socket_.emplace(*options_.watch, PQsocket(handle_));
  return handle_;
}

ConnectionPolicy::handle ConnectionPolicy::do_disconnect(handle connected) noexcept {
  socket_.reset();
  handle_ = nullptr;
  return connectionpolicy::do_disconnect(connected);
}

void ConnectionPolicy::Await(handle connecting) const {
  const absl::Time deadline = std::min(SteadyNow() + options_.connect_timeout, options_.deadline);
  if (connecting == nullptr || PQstatus(connecting) == CONNECTION_BAD) {
    ThrowLost(connecting, "cannot connect");
  }
  PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;
  while (wanted != PGRES_POLLING_OK) {
    if (wanted == PGRES_POLLING_FAILED) ThrowLost(connecting, "cannot connect");
    const absl::Duration left = deadline - SteadyNow();
    const absl::Duration look = std::clamp(left, absl::ZeroDuration(), ConnectionWatch::period());
    const short events = wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    pollfd waited{.fd = PQsocket(connecting), .events = events, .revents = 0};
    const int ready =
        poll(&waited, 1, static_cast<int>(Milliseconds(absl::Ceil(look, absl::Milliseconds(1)))));
    if (ready > 0) {
      wanted = PQconnectPoll(connecting);
      continue;
    }
    if (ready < 0 && errno != EINTR) ThrowLost(connecting, "cannot wait for the server");
    if (left <= absl::ZeroDuration()) ThrowLost(connecting, "no answer from the server");
    if (options_.watch != nullptr && options_.watch->has_given_up()) {
      ThrowLost(connecting, "the engine stops");
    }
  }
}

ConnectionPolicy::Call::Call(ConnectionPolicy& policy, absl::Time deadline) : policy_(policy) {
  if (!policy_.socket_) return;
  const absl::Duration timeout = policy_.options_.statement_timeout;
  policy_.socket_->BeginCall(deadline, timeout == absl::ZeroDuration()
                                           ? absl::InfiniteFuture()
                                           : SteadyNow() + timeout + kSilence);
}

ConnectionPolicy::Call::~Call() {
  if (policy_.socket_) policy_.socket_->EndCall();
}

std::string ConnectionPolicy::Settings() const {
  return absl::StrFormat(
      "SET client_encoding = 'UTF8'; SET synchronous_commit = on; SET work_mem = '32MB';"
      "SET statement_timeout = %d; SET lock_timeout = %d;"
      "SET idle_in_transaction_session_timeout = %d",
      Milliseconds(options_.statement_timeout), Milliseconds(options_.lock_timeout),
      Milliseconds(options_.idle_in_transaction_timeout));
}

std::string ConnectionPolicy::LostReason() const {
  const std::string reason = socket_ ? socket_->reason() : "";
  if (!reason.empty()) return reason;
  return handle_ == nullptr ? "the connection is closed" : PQerrorMessage(handle_);
}

}  // namespace lathe::engine
