// Keeps this process attached to the engine that currently leads.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/rpc/channel.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/rpc/attach_protocol.h"

namespace lathe::worker {

class AttachStream;

struct AttachOptions {
  // Addresses of engines, "unix:PATH" or "HOST:PORT". They are tried in turn.
  std::vector<std::string> engine_addresses;
  // TLS options for engines on other machines.
  ChannelTls engine_tls = {};
  // File with the secret of the data directory. It is read before every attempt, because a new
  // engine may have written a new secret.
  std::string secret_path;
  // Must stay below one second. After one idle second, gRPC's callback threads here and in the
  // engine sleep for 100 ms, which delays messages.
  absl::Duration heartbeat_interval = absl::Milliseconds(400);
  // An engine that is silent for this long is disconnected.
  absl::Duration silence_limit = absl::Seconds(6);
  // Minimum time to wait for an engine's first message when there are other addresses. The limit is
  // a quarter of the outage so far, so a hanging engine costs little time in the search for the
  // leader.
  absl::Duration min_first_answer = absl::Milliseconds(500);
  // Bounds of the pause between attempts, which is a tenth of the outage so far, less up to half of
  // it at random. So the worker reaches a restarted engine soon, and does not flood a missing one
  // with attempts.
  absl::Duration min_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(1);
};

enum class LeaveCause {
  kStopped,     // the process was asked to end
  kCannotWork,  // it failed and ends by itself
  kPeerGone,    // its group has lost a rank, and this process is healthy
};

// One thread dials, reads, writes and converts. It blocks only while idle. Reports may come from
// any thread. `executor` must outlive the client.
class AttachClient {
 public:
  // Both callbacks are called at most once, on the client's thread: `on_die` when an engine orders
  // this process to end, `on_rendezvous` when all ranks of a group of several have attached.
  AttachClient(AttachOptions options, WorkerIdentity identity, ExecutorPort& executor,
               std::function<void(const std::string& reason)> on_die,
               std::function<void(const RendezvousPoint&)> on_rendezvous = nullptr);
  ~AttachClient();

  void Start();
  // Tells the engine why this process ends, so that the engine does not count it as a crash.
  void Leave(const std::string& reason, LeaveCause cause);
  // Ends the stream. After a Leave it first waits until the engine has ended the stream, for at
  // most a second. Unacknowledged results are lost. May be called twice.
  void Stop();

  // Called by the executor's listener.
  void OnReport(ReportEvent event);
  void OnStateChanged();

 private:
  void Run();
  // `outage_began` is the time when the last working stream ended.
  void Serve(const std::string& address, absl::Time outage_began);
  // Returns the time until which a stream begun at `began` may stay silent.
  absl::Time GiveUpAt(absl::Time began, absl::Time outage_began) const;
  bool Exchange(AttachStream& stream);
  void AbsorbReports();
  void Pause(absl::Time outage_began);
  void Wake();
  void WaitUntil(absl::Time deadline);
  bool HasUpdates() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool stopping() const;
  bool has_left() const;
  // Queues the Leaving message if there is one to send.
  void SendLastMessage(absl::Time now);
  // Returns true if this side must end the stream. An engine that got Leaving ends it itself.
  bool MustEnd() const;

  const AttachOptions options_;
  const Dialer dialer_;
  const std::function<void(const std::string&)> on_die_;
  AttachProtocol protocol_;                               // client thread only
  absl::Time last_heard_;                                 // client thread only; on this stream
  absl::Time last_message_until_ = absl::InfinitePast();  // client thread only
  bool outage_is_logged_ = false;  // client thread only: logged once per outage, not per attempt

  mutable absl::Mutex mu_;
  std::deque<ReportEvent> reports_ ABSL_GUARDED_BY(mu_);
  bool state_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<lathe::v1::Leaving> leaving_ ABSL_GUARDED_BY(mu_);  // to be sent
  bool has_left_ ABSL_GUARDED_BY(mu_) = false;                      // was sent
  std::unique_ptr<NamedThread> thread_;
};

}  // namespace lathe::worker
