// lathe.v1.WorkerPool.Supervise: streams of the supervisors of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// Returns the cause of loss that the exit of a rank's process implies.
LossCause CauseOf(const v1::RankExited& exited);
// Returns text such as "signal 11" or "exit code 1".
std::string DescribeEnd(const v1::RankExited& exited);

// Reports to the core how workers end, and forwards kill commands. The core does not wait for a
// kill, because epochs fence off old processes. Thread-safe.
class Supervisors {
 public:
  // Answers a DrainOwnGroup on any thread.
  using DrainAnswer = std::function<void(v1::GroupDrain)>;
  using Drain = std::function<void(const v1::DrainOwnGroup&, DrainAnswer)>;

  // `post` takes events on any thread; it must neither block nor call back. The events of one group
  // come in the order in which they happened. `check` validates the first message of a stream.
  // `drain` drains a group, without blocking.
  Supervisors(std::function<void(EventBody)> post,
              std::function<absl::Status(const v1::SupervisorHello&)> check, Drain drain)
      : post_(std::move(post)), check_(std::move(check)), drain_(std::move(drain)) {}

  // Starts a stream, which lives until gRPC is done with it.
  grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Start();
  void EndStreams();

  // Returns false if no attached supervisor runs that rank.
  bool Kill(const std::string& group, int64_t rank, int64_t pid, const std::string& reason);

 private:
  class Stream;

  absl::Status OnMessage(Stream& stream, const v1::SupervisorMessage& message);
  void OnStarted(Stream& stream, const v1::RankStarted& started);
  void OnExited(const v1::RankExited& exited);
  void OnDrain(Stream& stream, const v1::DrainOwnGroup& wanted);
  void OnClosed(Stream& stream);

  const std::function<void(EventBody)> post_;
  const std::function<absl::Status(const v1::SupervisorHello&)> check_;
  const Drain drain_;

  struct Rank {
    std::shared_ptr<Stream> parent;
    int64_t pid = 0;
  };
  absl::Mutex mu_;
  std::map<const Stream*, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, int64_t>, Rank> ranks_ ABSL_GUARDED_BY(mu_);  // by group and rank
};

}  // namespace lathe::engine
