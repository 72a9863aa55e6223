// lathe.v1.Metrics: metrics of training runs.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/metrics.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/series/series_reader.h"

namespace lathe::engine {

using MetricPatterns = google::protobuf::RepeatedPtrField<std::string>;

// Implements the service. Authenticates as EngineService does. Both calls may read the store, so
// they run on the threads for reads, where each tenant has its share.
class MetricsService final : public v1::Metrics::CallbackService {
 public:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  // The arguments must outlive this and its server.
  MetricsService(Runtime& runtime, const KeyRing& keys, ReadThreads& reads)
      : runtime_(runtime), keys_(keys), reads_(reads) {}

  Reactor* Append(Context* context, const v1::AppendMetricsRequest* request,
                  v1::AppendMetricsResponse* response) override;
  Reactor* QueryMachine(Context* context, const v1::QueryMachineRequest* request,
                        v1::QueryMetricsResponse* response) override;
  Reactor* Query(Context* context, const v1::QueryMetricsRequest* request,
                 v1::QueryMetricsResponse* response) override;

 private:
  // NotFound if the run is another tenant's or absent.
  absl::Status CheckRun(const Caller& caller, const std::string& run_id) const;
  // Returns the points of a valid request.
  absl::StatusOr<PointEntry> PointsOf(const Caller& caller,
                                      const v1::AppendMetricsRequest& request) const;
  absl::Status Read(const Caller& caller, const v1::QueryMetricsRequest& request,
                    v1::QueryMetricsResponse& response) const;

  absl::Status ReadMachine(const Caller& caller, const v1::QueryMachineRequest& request,
                           v1::QueryMetricsResponse& response) const;
  // Adds the metrics of `owner`, a run or as in machine_series.h, that `names` select.
  absl::Status ReadSeries(const std::string& owner, const MetricPatterns& names, StepRange range,
                          int64_t max_buckets, v1::QueryMetricsResponse& response) const;

  Runtime& runtime_;
  const KeyRing& keys_;
  ReadThreads& reads_;
};

}  // namespace lathe::engine
