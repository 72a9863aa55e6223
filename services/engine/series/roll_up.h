// Builds the levels above 0 of a series from its full chunks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/store/series_rows.h"

namespace lathe::engine {

// Reads a chunk that is stored; nullopt: there is none.
using ReadChunk = std::function<absl::StatusOr<std::optional<SeriesChunkRow>>(
    const std::string& name, int64_t level, int64_t number)>;

// Takes the full chunks of level 0 that a fold adds to one run. Returns them with the chunks of the
// levels above that follow from them. A repetition of a fold returns the same chunks. Returns the
// errors of `read`, and DataLoss for a damaged chunk.
absl::StatusOr<std::vector<SeriesChunkRow>> RollUp(std::vector<SeriesChunkRow> sealed,
                                                   const ReadChunk& read);

// Returns which chunks a series no longer keeps once `chunks` are added. Level 0 keeps
// `keep_points`, and each level above a quarter of the buckets of the level below. So the oldest
// points are in the coarsest buckets, and the size of a series is bounded.
std::vector<DroppedChunks> ChunksToDrop(const std::vector<SeriesChunkRow>& chunks,
                                        int64_t keep_points);

}  // namespace lathe::engine
