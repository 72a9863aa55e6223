// The parent's stream to the engine: reports how ranks end and receives kill requests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/rpc/channel.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "tools/lathe/launch/supervisor.h"

namespace lathe::cli {

struct SuperviseOptions {
  // Addresses of the engines' worker listeners, tried in turn until one leads.
  std::vector<std::string> addresses;
  ChannelTls tls;
  std::filesystem::path secret_file;  // read anew for each connection
  std::string group = "default";
};

// Stays attached to the leading engine on behalf of the ranks of one group. Its threads only use
// the stream; the main thread starts and kills the processes.
class SuperviseClient {
 public:
  // `on_kill` is called on the reader thread when TakeKills has new entries.
  SuperviseClient(SuperviseOptions options, std::function<void()> on_kill);
  ~SuperviseClient();

  void OnStarted(int64_t rank, pid_t pid);
  void OnExit(int64_t rank, const ChildExit& exit);

  // Asks the engine to take the group out of service, or to use it again. May be repeated.
  void AskDrain(bool is_draining);
  // Returns the engine's latest answer to AskDrain, once. An earlier release gives none.
  std::optional<v1::GroupDrain> TakeDrain();

  // Returns, once, the processes that the engine wants killed, each with the reason.
  std::vector<v1::KillRank> TakeKills();

 private:
  using Stream = grpc::ClientReaderWriter<v1::SupervisorMessage, v1::SupervisorCommand>;

  void Run();
  // Connects to `address` and returns when the stream ends or the client stops.
  void Serve(const std::string& address);
  void Read(Stream& stream);
  bool Say(Stream& stream);
  bool HasUpdates() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SuperviseOptions options_;
  const Dialer dialer_;
  const std::function<void()> on_kill_;

  absl::Mutex mu_;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;  // true if the stream has ended
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Latest message by rank: its running process, or how its last process ended.
  std::map<int64_t, v1::SupervisorMessage> last_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::SupervisorMessage> to_say_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::KillRank> kills_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::GroupDrain> drain_ ABSL_GUARDED_BY(mu_);
  NamedThread thread_;
};

}  // namespace lathe::cli
