// Keeps this process attached to whichever engine leads.
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
  // "unix:PATH" or "HOST:PORT"; tried in turn.
  std::vector<std::string> engine_addresses;
  // Of those on other machines.
  ChannelTls engine_tls = {};
  // File with the secret of the data directory, read before every attempt: a new engine may have
  // written a new one.
  std::string secret_path;
  // Below the second after which gRPC's callback threads sleep for 100 ms, here and in the engine,
  // and delay what arrives then.
  absl::Duration heartbeat_interval = absl::Milliseconds(400);
  // An engine that says nothing for so long is given up.
  absl::Duration silence_limit = absl::Seconds(6);
  // The same before its first word, when there are other addresses: a quarter of the outage so far,
  // at least this. A hanging engine then costs little time while the one that leads is looked for.
  absl::Duration min_first_answer = absl::Milliseconds(500);
  // Pause between attempts: a tenth of the outage so far, within these bounds, less up to half of
  // it at random. So a restarted engine waits little for us and a missing one is not bothered.
  absl::Duration min_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(1);
};

enum class LeaveCause {
  kTold,        // to end
  kCannotWork,  // nobody told it to
  kPeerGone,    // its group is no more, and nothing is wrong with it
};

// One thread dials, reads, writes and converts; it blocks only while nothing happens. Reports may
// come from any thread. `executor` must outlive it.
class AttachClient {
 public:
  // Both are called once, on the client's thread: `on_die` when an engine tells this process to
  // end, `on_meeting` when all ranks of a group of several have come.
  AttachClient(AttachOptions options, WorkerIdentity identity, ExecutorPort& executor,
               std::function<void(const std::string& reason)> on_die,
               std::function<void(const Meeting&)> on_meeting = nullptr);
  ~AttachClient();

  void Start();
  // Tells the engine why this process ends, so that it is not taken for one that died at its work.
  void Leave(const std::string& reason, LeaveCause cause);
  // Ends the stream, after a Leave when the engine has heard of it or a second has passed; what was
  // not acknowledged is lost. May be called twice.
  void Stop();

  // For the executor's listener.
  void OnReport(ReportEvent event);
  void OnStateChanged();

 private:
  void Run();
  // `outage_began`: when the last stream that worked ended.
  void Serve(const std::string& address, absl::Time outage_began);
  // Until when the stream that `began` then may stay silent.
  absl::Time GiveUpAt(absl::Time began, absl::Time outage_began) const;
  bool Exchange(AttachStream& stream);
  void AbsorbReports();
  void Pause(absl::Time outage_began);
  void Wake();
  void WaitUntil(absl::Time deadline);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool stopping() const;
  bool has_left() const;
  // Says why we leave, if it is to be said.
  void SayFarewell(absl::Time now);
  // Whether to end the stream from this side. An engine that was told of it ends it.
  bool MustEnd() const;

  const AttachOptions options_;
  const Dialer dialer_;
  const std::function<void(const std::string&)> on_die_;
  AttachProtocol protocol_;                           // client thread only
  absl::Time last_heard_;                             // client thread only; of this stream
  absl::Time farewell_until_ = absl::InfinitePast();  // client thread only
  bool outage_is_logged_ = false;  // client thread only: once per outage, not per attempt

  mutable absl::Mutex mu_;
  std::deque<ReportEvent> reports_ ABSL_GUARDED_BY(mu_);
  bool state_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<lathe::v1::Leaving> leaving_ ABSL_GUARDED_BY(mu_);  // to be said
  bool has_left_ ABSL_GUARDED_BY(mu_) = false;                      // it is said
  std::unique_ptr<NamedThread> thread_;
};

}  // namespace lathe::worker
