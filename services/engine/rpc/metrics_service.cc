#include "services/engine/rpc/metrics_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/find_rows.h"
#include "services/engine/rpc/machine_series.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/run_reader.h"
#include "services/engine/rpc/validate_metrics.h"
#include "services/engine/series/chunk.h"
#include "services/engine/series/metric_names.h"
#include "services/engine/series/run_series.h"
#include "services/engine/series/series_reader.h"

namespace lathe::engine {
namespace {

bool IsSelected(const MetricPatterns& names, const std::string& name) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& pattern) {
           return MatchesPattern(pattern, name);
         });
}

void FillHead(const SeriesRow& row, v1::MetricSeries& series) {
  series.set_name(row.name);
  series.set_unit(row.unit);
  series.set_count(row.num_points);
  series.set_last_step(row.last_step);
  series.set_last_value(row.last_value);
  *series.mutable_last_time() = ToTimestamp(row.last_ms * 1'000'000);
}

void FillBuckets(const SeriesBuckets& read, v1::MetricSeries& series) {
  series.set_level(read.level);
  for (const Bucket& bucket : read.buckets) {
    series.add_steps(bucket.step);
    series.add_times_ms(bucket.unix_ms);
    series.add_min(bucket.min);
    series.add_max(bucket.max);
    series.add_mean(bucket.mean);
    series.add_counts(bucket.count);
  }
}

}  // namespace

absl::Status MetricsService::CheckRun(const Caller& caller, const std::string& run_id) const {
  if (runtime_.directory().FindModel(caller.tenant_id, run_id)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<ModelRow> row,
                   runtime_.store().FindModel(caller.tenant_id, run_id));
  return row ? absl::OkStatus() : NoSuch("training run", run_id, "training_run_id");
}

absl::StatusOr<PointEntry> MetricsService::PointsOf(const Caller& caller,
                                                    const v1::AppendMetricsRequest& request) const {
  if (!runtime_.series_options().is_on()) {
    return WithDetail(
        absl::FailedPreconditionError("this server keeps no metrics (metrics.keep is 0s)"),
        "metrics_off");
  }
  RETURN_IF_ERROR(CheckRun(caller, request.training_run_id()));
  ASSIGN_OR_RETURN(PointEntry entry, ValidatePoints(request, runtime_.NowNanos()));
  entry.tenant_id = caller.tenant_id;
  return entry;
}

MetricsService::Reactor* MetricsService::Append(Context* context,
                                                const v1::AppendMetricsRequest* request,
                                                v1::AppendMetricsResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys_, *context, "Metrics.Append");
  absl::Status status = caller.status();
  if (caller.ok()) {
    const auto entry = std::make_shared<absl::StatusOr<PointEntry>>();
    status = reads_.TryRun(
        caller->tenant_id,
        [this, entry, request, caller = *caller] { *entry = PointsOf(caller, *request); },
        [this, entry, request, response, reactor] {
          if (!entry->ok()) {
            reactor->Finish(ToGrpcStatus(entry->status()));
            return;
          }
          runtime_.AppendPoints(*std::move(*entry),
                                [request, response, reactor](const Answer& answer) {
                                  if (answer.error) {
                                    reactor->Finish(ToGrpcStatus(ToStatus(*answer.error)));
                                    return;
                                  }
                                  response->set_num_points(request->points_size());
                                  reactor->Finish(grpc::Status::OK);
                                });
        });
  }
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

MetricsService::Reactor* MetricsService::Query(Context* context,
                                               const v1::QueryMetricsRequest* request,
                                               v1::QueryMetricsResponse* response) {
  return ReadCall(reads_, keys_, context, "Metrics.Query",
                  [this, request, response](const Caller& caller) {
                    return Read(caller, *request, *response);
                  });
}

MetricsService::Reactor* MetricsService::QueryMachine(Context* context,
                                                      const v1::QueryMachineRequest* request,
                                                      v1::QueryMetricsResponse* response) {
  return ReadCall(reads_, keys_, context, "Metrics.QueryMachine",
                  [this, request, response](const Caller& caller) {
                    return ReadMachine(caller, *request, *response);
                  });
}

absl::Status MetricsService::ReadMachine(const Caller& caller,
                                         const v1::QueryMachineRequest& request,
                                         v1::QueryMetricsResponse& response) const {
  RETURN_IF_ERROR(ValidateMachineQuery(request));
  std::string owner = kServiceSeries;
  if (request.own_tenant()) owner = SeriesOfTenant(caller.tenant_id);
  if (request.has_group()) {
    if (!caller.scopes.HasAny(Scope::kAdmin)) {
      return WithDetail(
          absl::PermissionDeniedError("curves of a group of workers need the scope admin"),
          "missing_scope", "group");
    }
    owner = SeriesOfGroup(request.group());
  }
  const absl::Time now = absl::FromUnixNanos(runtime_.NowNanos());
  const int64_t seconds = request.has_seconds() ? request.seconds() : kDefaultMachineSeconds;
  StepRange range;
  range.from = MachineStepOf(now - absl::Seconds(seconds));
  const int64_t max_buckets =
      request.has_max_buckets() ? request.max_buckets() : kDefaultMachineBuckets;
  return ReadSeries(owner, request.names(), range, max_buckets, response);
}

absl::Status MetricsService::Read(const Caller& caller, const v1::QueryMetricsRequest& request,
                                  v1::QueryMetricsResponse& response) const {
  RETURN_IF_ERROR(CheckRun(caller, request.training_run_id()));
  RETURN_IF_ERROR(ValidateQuery(request));
  const int64_t max_buckets = request.has_max_buckets() ? request.max_buckets() : kDefaultBuckets;
  StepRange range;
  if (request.has_from_step()) range.from = request.from_step();
  if (request.has_to_step()) range.to = request.to_step();
  response.set_training_run_id(request.training_run_id());
  return ReadSeries(request.training_run_id(), request.names(), range, max_buckets, response);
}

absl::Status MetricsService::ReadSeries(const std::string& owner, const MetricPatterns& names,
                                        StepRange range, int64_t max_buckets,
                                        v1::QueryMetricsResponse& response) const {
  RunReader reader(runtime_, owner);
  ASSIGN_OR_RETURN(const RunSeries run, reader.Heads());
  for (const auto& [name, head] : run.series()) {
    if (!IsSelected(names, name)) continue;
    if (max_buckets == 0) {
      FillHead(head.row, *response.add_series());
      continue;
    }
    if (response.series_size() == kMaxSeriesPerAnswer) {
      response.set_more_names(true);
      break;
    }
    ASSIGN_OR_RETURN(const Series series, reader.WithTail(name));
    v1::MetricSeries& out = *response.add_series();
    FillHead(series.row, out);
    ASSIGN_OR_RETURN(const SeriesBuckets buckets,
                     ReadBuckets(runtime_.store(), series, range, max_buckets));
    FillBuckets(buckets, out);
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
