// The requests that this process has received and the engine has not acknowledged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protos/lathe/v1/types.pb.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::worker {

// Facts about a request that its answer needs.
struct RequestInfo {
  lathe::v1::OperationKind kind = lathe::v1::OPERATION_KIND_UNSPECIFIED;
  std::string model_id;
  // For train requests, per datum: K of (N, K) targets, 0 for one-dimensional ones.
  std::vector<int64_t> output_columns;
};

// A request is unknown, running, or done until the engine acknowledges its result. A request that
// an engine sends twice thus runs once. Not thread-safe. Results stay in memory; their number is
// bounded by the requests that an engine has dispatched to this process.
class RequestTable {
 public:
  enum class Arrival { kNew, kRunning, kDone };

  // Records a new request as running.
  Arrival Begin(const std::string& request_id, RequestInfo info);

  // Returns the info of a running request; nullptr: it is not running.
  const RequestInfo* FindRunning(const std::string& request_id) const;

  // Marks a running request as done. Ignores a request that is not running.
  void Finish(lathe::v1::OperationDone done);

  // Records how many of a running request's sequences have ended. Ignores other requests.
  void SetEnded(const std::string& request_id, int64_t num_ended);
  // Returns that number; 0 for other requests.
  int64_t NumEnded(const std::string& request_id) const;

  // Returns the retained result; nullptr: not done, or acknowledged.
  const lathe::v1::OperationDone* FindDone(const std::string& request_id) const;

  void Acknowledge(const std::string& request_id);

  // Removes a request that was never passed to the executor.
  void Withdraw(const std::string& request_id);

  void Clear() { entries_.clear(); }

  std::vector<std::string> RunningIds() const;
  std::vector<const lathe::v1::OperationDone*> DoneResults() const;

 private:
  struct Entry {
    RequestInfo info;
    int64_t num_ended = 0;
    std::optional<lathe::v1::OperationDone> done;
  };

  std::map<std::string, Entry> entries_;
};

}  // namespace lathe::worker
