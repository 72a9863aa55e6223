// Conversion of worker messages to the core's events and to the admin's status, and validation of a
// rank's place in its mesh.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/object_store/object_store.h"
#include "protos/lathe/v1/admin.pb.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/engine/core/events.h"
#include "services/engine/runtime/sample_streams.h"

namespace lathe::engine {

ReadyModel ToReady(const v1::ModelInfo& model);

// Returns the mesh of a single rank if the hello has none.
MeshShape ToMesh(const v1::Hello& hello);
WorkerAttached ToEvent(const v1::Hello& hello);
// Returns why a worker must not work for an engine whose checkpoints are at `own`. Empty: it may. A
// worker of another place would save where the engine does not look, and find no snapshots.
std::string WhyOtherPlace(const CheckpointPlace& own, const v1::Hello& hello);

// Return what a hello says of a group and a rank, as the admin service shows it.
v1::GroupStatus ToGroupStatus(const v1::Hello& hello);
v1::RankStatus ToRankStatus(const v1::Hello& hello);

// The caller must hold the encoded result, which `result_id` names.
WorkerDone ToEvent(const std::string& group, int64_t epoch, const v1::OperationDone& done,
                   std::string result_id);

std::vector<StreamedToken> ToTokens(const v1::SampleProgress& progress);

WorkerSampleProgress ToEvent(const std::string& group, int64_t epoch,
                             const v1::SampleProgress& progress);
WorkerStarted ToEvent(const std::string& group, int64_t epoch, const v1::Started& started);
WorkerVersionLoaded ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionLoaded& loaded);
WorkerVersionServed ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionServed& served);
WorkerVersionFailed ToEvent(const std::string& group, int64_t epoch,
                            const v1::VersionFailed& failed);

WorkerSnapshotDone ToEvent(const std::string& group, int64_t epoch, const v1::SnapshotDone& done);

WorkerVersionSaved ToEvent(const std::string& group, int64_t epoch, const v1::VersionSaved& saved);

// Returns text such as "dp 2 x fsdp 1 x tp 2".
std::string Describe(const MeshShape& mesh);

// Returns InvalidArgument that names the invalid field, its value and its bound.
absl::Status CheckMesh(const v1::Hello& hello);

}  // namespace lathe::engine
