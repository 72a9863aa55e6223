// Which requests this process has received and not yet been told to forget.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protos/lathe/v1/types.pb.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::worker {

// What the answer to a request needs to know of the request.
struct RequestInfo {
  lathe::v1::OperationKind kind = lathe::v1::OPERATION_KIND_UNSPECIFIED;
  std::string model_id;
  // Trains only, per datum: K of (N, K) targets, 0 for one-dimensional ones.
  std::vector<int64_t> output_columns;
};

// A request is unknown, running, or done until the engine acknowledges its result; so a request
// that an engine sends twice runs once. Not thread-safe. Holds results in memory: they are bounded
// by the number of requests an engine has dispatched to us.
class RequestBook {
 public:
  enum class Arrival { kNew, kRunning, kDone };

  // Records a new request as running.
  Arrival Begin(const std::string& request_id, RequestInfo info);

  // Of a running request; nullptr: there is none.
  const RequestInfo* FindRunning(const std::string& request_id) const;

  // Running -> done. Ignores a request that is not running.
  void Finish(lathe::v1::OperationDone done);

  // The retained result; nullptr: not done, or acknowledged.
  const lathe::v1::OperationDone* FindDone(const std::string& request_id) const;

  void Acknowledge(const std::string& request_id);

  // Forgets a request that was never handed on.
  void Withdraw(const std::string& request_id);

  void Clear() { entries_.clear(); }

  std::vector<std::string> RunningIds() const;
  std::vector<const lathe::v1::OperationDone*> DoneResults() const;

 private:
  struct Entry {
    RequestInfo info;
    std::optional<lathe::v1::OperationDone> done;
  };

  std::map<std::string, Entry> entries_;
};

}  // namespace lathe::worker
