// The packed form of a batch in the journal.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/series/points.h"

namespace lathe::engine {

// Packs the entries in their order.
std::string PackBatch(std::span<const PointEntryPtr> entries);

// Returns DataLoss for bytes that PackBatch did not make, and FailedPrecondition for those of a
// later release.
absl::StatusOr<std::vector<PointEntryPtr>> UnpackBatch(std::string_view bytes);

}  // namespace lathe::engine
