// The parent of ranks: says how they end, and hears whom to kill.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/rpc/channel.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "tools/lathe/supervisor.h"

namespace lathe::cli {

struct SuperviseOptions {
  // Of the engines' worker listeners, tried in turn until one leads.
  std::vector<std::string> addresses;
  ChannelTls tls;
  std::filesystem::path secret_file;  // read for each connection
  std::string group = "default";
};

// Attached to the engine for as long as it lives, with ranks of one group. Its threads only
// talk: processes are the main thread's.
class SuperviseClient {
 public:
  // `on_kill` is called on a thread of its own when TakeKills has something.
  SuperviseClient(SuperviseOptions options, std::function<void()> on_kill);
  ~SuperviseClient();

  void OnStarted(int64_t rank, pid_t pid);
  void OnExit(int64_t rank, const ChildExit& exit);

  // Processes that the engine wants killed, each with the reason.
  std::vector<v1::KillRank> TakeKills();

 private:
  using Stream = grpc::ClientReaderWriter<v1::SupervisorMessage, v1::SupervisorCommand>;

  void Run();
  // Until the stream ends, or this does.
  void Serve(const std::string& address);
  void Read(Stream& stream);
  bool Say(Stream& stream);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SuperviseOptions options_;
  const Dialer dialer_;
  const std::function<void()> on_kill_;

  absl::Mutex mu_;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;  // of the stream
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Of each rank what runs, or how the last one ended.
  std::map<int64_t, v1::SupervisorMessage> last_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::SupervisorMessage> to_say_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::KillRank> kills_ ABSL_GUARDED_BY(mu_);
  NamedThread thread_;
};

}  // namespace lathe::cli
