// Conversion of ops/ reports and states to lathe.v1, as the engine stores them and users receive
// them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/ops/reports.h"
#include "services/worker/rpc/request_table.h"

namespace lathe::worker {

// Returns the request id that a report answers. Empty for reports that answer none: Started,
// SampleProgress, SnapshotDone and reports about sampler versions.
const std::string& AnsweredRequest(const Report& report);

// Converts the outcome of the request that `event.report` answers. Leaves out paths of saves and
// publications, whose names the engine fills in.
lathe::v1::OperationDone ToOperationDone(const ReportEvent& event, const RequestInfo& info);

// InvalidArgument and FailedPrecondition are the user's errors, all others the server's.
lathe::v1::Error ToError(const absl::Status& status);

lathe::v1::SampleProgress ToProto(const SampleProgress& progress);
lathe::v1::SnapshotDone ToProto(const SnapshotDone& done);
lathe::v1::VersionSaved ToProto(const VersionSaved& saved);
lathe::v1::VersionServed ToProto(const VersionServed& served);
lathe::v1::ModelState ToProto(const ModelState& state);
lathe::v1::ModelInfo ToProto(const ModelInfo& info);
lathe::v1::MemoryUse ToProto(const MemoryUse& use);

}  // namespace lathe::worker
