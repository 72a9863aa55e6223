// lathe.v1.WorkerPool.Supervise: the parents of ranks.
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

// What a rank's end says of its work.
LossCause CauseOf(const v1::RankExited& exited);
// "signal 11", "exit code 1".
std::string DescribeEnd(const v1::RankExited& exited);

// Tells the core how workers end, and passes kills on. Fencing is by epoch: nobody waits for a
// kill. Thread-safe.
class Supervisors {
 public:
  // `post` takes events on any thread, must not block and not call back: what it is told of a group
  // comes in the order in which it happened. `check` looks at the first message of a stream.
  Supervisors(std::function<void(EventBody)> post,
              std::function<absl::Status(const v1::SupervisorHello&)> check)
      : post_(std::move(post)), check_(std::move(check)) {}

  // A stream of its own, until gRPC is done with it.
  grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Start();
  void EndStreams();

  // False: nobody here is its parent.
  bool Kill(const std::string& group, int64_t rank, int64_t pid, const std::string& reason);

 private:
  class Stream;

  absl::Status OnMessage(Stream& stream, const v1::SupervisorMessage& message);
  void OnStarted(Stream& stream, const v1::RankStarted& started);
  void OnExited(const v1::RankExited& exited);
  void OnClosed(Stream& stream);

  const std::function<void(EventBody)> post_;
  const std::function<absl::Status(const v1::SupervisorHello&)> check_;

  struct Rank {
    std::shared_ptr<Stream> parent;
    int64_t pid = 0;
  };
  absl::Mutex mu_;
  std::map<const Stream*, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, int64_t>, Rank> ranks_ ABSL_GUARDED_BY(mu_);  // by group and rank
};

}  // namespace lathe::engine
