// Validation of a rank's place in its mesh.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// Returns text such as "dp 2 x fsdp 1 x tp 2".
std::string Describe(const MeshShape& mesh);

// Returns InvalidArgument that names the invalid field, its value and its bound.
absl::Status CheckMesh(const v1::Hello& hello);

}  // namespace lathe::engine
