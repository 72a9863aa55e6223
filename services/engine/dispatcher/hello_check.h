// Whether a rank's place in its mesh can be.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// "dp 2 x fsdp 1 x tp 2"
std::string Describe(const MeshShape& mesh);

// InvalidArgument naming what is wrong, its value and its bound.
absl::Status CheckMesh(const v1::Hello& hello);

}  // namespace lathe::engine
