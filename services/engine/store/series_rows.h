// Rows of kept metrics: the series of a run, their chunks, and the journal of points that are
// durable and not yet in their series. No SQL here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::engine {

// Facts that the series of a run share.
struct RunSeriesRow {
  std::string run_id;  // a model
  std::string tenant_id;
  // Number of optim_steps whose results are folded. The next result belongs to this step.
  int64_t num_steps = 0;
  // Journal id of the last batch that is folded into the run's series.
  int64_t folded_through = 0;
  int64_t num_series = 0;
  int64_t last_at = 0;  // time of the last fold
};

enum class SeriesSource { kResults = 1, kUsers = 2 };

// One metric of a run: its last point, and the points that are in no chunk yet.
struct SeriesRow {
  std::string run_id;
  std::string name;
  std::string unit;
  SeriesSource source = SeriesSource::kResults;
  // Journal id of the last batch that is folded into this series.
  int64_t folded_through = 0;
  int64_t num_points = 0;  // including those that retention removed
  int64_t num_sealed = 0;  // points in chunks; a multiple of kChunkPoints
  int64_t last_step = 0;
  double last_value = 0;
  int64_t last_ms = 0;  // Unix time in milliseconds
  std::string tail;     // packed points after the sealed ones; empty in a head
};

// Packed points (level 0) or buckets (levels above) of a series. Chunk `number` begins at bucket
// number * kChunkPoints of its level.
struct SeriesChunkRow {
  std::string run_id;
  std::string name;
  int64_t level = 0;
  int64_t number = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t num_buckets = 0;
  std::string bytes;
};

// A batch of points that one commit made durable. Ids grow, also from one leader to the next.
struct JournalRow {
  int64_t journal_id = 0;
  std::string bytes;
};

// Chunks that retention removes: those of a level below `before_number`.
struct DroppedChunks {
  std::string name;
  int64_t level = 0;
  int64_t before_number = 0;
};

// One fold of a run: the new state of what has changed.
struct SeriesFold {
  RunSeriesRow run;
  std::vector<SeriesRow> series;
  std::vector<SeriesChunkRow> chunks;
  std::vector<DroppedChunks> dropped;
};

}  // namespace lathe::engine
