#include "services/engine/series/series_reader.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "libs/common/status_macros.h"
#include "services/engine/series/chunk.h"

namespace lathe::engine {
namespace {

// Buckets that are read for each bucket of the answer, so that the joined ones differ little in
// their number of points.
constexpr int64_t kReadPerBucket = 4;
// Fewer are never worth a coarser level.
constexpr int64_t kMinRead = 2048;

class Reader {
 public:
  Reader(Store& store, const Series& series, const StepRange& range)
      : store_(store), row_(series.row), series_(series), range_(range) {}

  absl::StatusOr<SeriesBuckets> Read(int64_t max_buckets) {
    SeriesBuckets result;
    ASSIGN_OR_RETURN(result.level, ChooseLevel(std::max(kMinRead, kReadPerBucket * max_buckets)));
    std::vector<Bucket>& all = result.buckets;
    RETURN_IF_ERROR(AddOlder(result.level, all));
    RETURN_IF_ERROR(AddLevel(result.level, /*from_number=*/0, kAll, all));
    // A level has only what full chunks below it have given. The rest is in one open chunk of each
    // level between it and level 0, and in the tail.
    for (int64_t level = result.level - 1; level > 0; --level) {
      const int64_t open = BucketsInChunks(level, row_.num_sealed) / kChunkPoints;
      RETURN_IF_ERROR(AddLevel(level, open, kAll, all));
    }
    AddInRange(ToBuckets(series_.tail), all);
    all = Downsample(all, max_buckets);
    return result;
  }

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  // Returns the finest level with at most `max_read` buckets in the range. A level from which
  // retention has removed the whole range does not count.
  absl::StatusOr<int64_t> ChooseLevel(int64_t max_read) {
    int64_t num_above = 0;
    for (int64_t level = kTopLevel; level >= 0; --level) {
      ASSIGN_OR_RETURN(const int64_t count, store_.CountSeriesBuckets(row_.run_id, row_.name, level,
                                                                      range_.from, range_.to));
      if (count > max_read || (count == 0 && num_above > 0)) return std::min(level + 1, kTopLevel);
      num_above = count;
    }
    return 0;
  }

  // Adds what is older than the first chunk of `level`, from the levels above.
  absl::Status AddOlder(int64_t level, std::vector<Bucket>& all) {
    ASSIGN_OR_RETURN(int64_t first, FirstBucket(level));
    std::vector<std::vector<Bucket>> parts;
    for (int64_t above = level + 1; above <= kTopLevel && first > 0; ++above) {
      const int64_t before = first / kLevelRatio;
      parts.emplace_back();
      RETURN_IF_ERROR(AddLevel(above, 0, before, parts.back()));
      ASSIGN_OR_RETURN(const int64_t next, FirstBucket(above));
      first = std::min(before, next);
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      all.insert(all.end(), part->begin(), part->end());
    }
    return absl::OkStatus();
  }

  // Returns the number of the oldest bucket that is stored.
  absl::StatusOr<int64_t> FirstBucket(int64_t level) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> number,
                     store_.FirstSeriesChunk(row_.run_id, row_.name, level));
    return number ? *number * kChunkPoints : BucketsInChunks(level, row_.num_sealed);
  }

  // Adds the buckets from chunk `from_number` on whose own number is below `before`. The store may
  // have more than the row knows, if a fold came between: those are left out.
  absl::Status AddLevel(int64_t level, int64_t from_number, int64_t before,
                        std::vector<Bucket>& all) {
    before = std::min(before, BucketsInChunks(level, row_.num_sealed));
    if (from_number * kChunkPoints >= before) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        const std::vector<SeriesChunkRow> chunks,
        store_.ReadSeriesChunks(row_.run_id, row_.name, level,
                                {.from_number = from_number,
                                 .before_number = (before + kChunkPoints - 1) / kChunkPoints,
                                 .from_step = range_.from,
                                 .to_step = range_.to}));
    for (const SeriesChunkRow& chunk : chunks) {
      ASSIGN_OR_RETURN(std::vector<Bucket> buckets, Unpack(chunk));
      const int64_t begin = chunk.number * kChunkPoints;
      if (begin + static_cast<int64_t>(buckets.size()) > before) {
        buckets.resize(static_cast<size_t>(before - begin));
      }
      AddInRange(std::move(buckets), all);
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<std::vector<Bucket>> Unpack(const SeriesChunkRow& chunk) {
    if (chunk.level > 0) return UnpackBuckets(chunk.bytes, chunk.level);
    ASSIGN_OR_RETURN(const std::vector<Point> points, UnpackPoints(chunk.bytes));
    return ToBuckets(points);
  }

  void AddInRange(std::vector<Bucket> buckets, std::vector<Bucket>& all) const {
    std::copy_if(buckets.begin(), buckets.end(), std::back_inserter(all),
                 [this](const Bucket& bucket) {
                   return bucket.step >= range_.from && bucket.step <= range_.to;
                 });
  }

  Store& store_;
  const SeriesRow& row_;
  const Series& series_;
  const StepRange range_;
};

}  // namespace

absl::StatusOr<SeriesBuckets> ReadBuckets(Store& store, const Series& series,
                                          const StepRange& range, int64_t max_buckets) {
  return Reader(store, series, range).Read(max_buckets);
}

}  // namespace lathe::engine
