// The events of an engine in memory, for the gateway's tests.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/events.grpc.pb.h"

namespace lathe::gateway {

// Accepts each subscription but those to the run "absent". Has one tenant. Thread-safe.
class FakeEvents final : public v1::Events::Service {
 public:
  static constexpr int64_t kTenantFeed = 1;
  static constexpr int64_t kRunFeed = 2;

  // Term that the next answers name.
  void SetTerm(int64_t term);
  // Sends a new point of the run to the stream, if there is one.
  void PushPoint(const std::string& run_id, int64_t step, double value);
  // Refuses every subscription that was accepted.
  void RefuseAll();
  // These wait up to 10 s and return false if it did not happen.
  bool AwaitSubscriptions(size_t count);
  // Number of streams since the beginning.
  int num_streams();

  using Server = grpc::ServerReaderWriter<v1::EventsResponse, v1::EventsRequest>;
  grpc::Status Stream(grpc::ServerContext* context, Server* stream) override;

 private:
  void Answer(const v1::EventsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(int64_t subscription_id, grpc::StatusCode code, const char* word)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Server* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::set<int64_t> accepted_ ABSL_GUARDED_BY(mu_);
  int64_t term_ ABSL_GUARDED_BY(mu_) = 1;
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::gateway
