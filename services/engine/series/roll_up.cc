#include "services/engine/series/roll_up.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "libs/common/status_macros.h"
#include "services/engine/series/chunk.h"

namespace lathe::engine {
namespace {

constexpr int64_t kRolled = kChunkPoints / kLevelRatio;  // buckets that a full chunk makes

absl::StatusOr<std::vector<Bucket>> BucketsOf(const SeriesChunkRow& chunk) {
  if (chunk.level > 0) return UnpackBuckets(chunk.bytes, chunk.level);
  ASSIGN_OR_RETURN(const std::vector<Point> points, UnpackPoints(chunk.bytes));
  return ToBuckets(points);
}

using Key = std::tuple<std::string, int64_t, int64_t>;  // name, level, number

Key KeyOf(const SeriesChunkRow& chunk) { return {chunk.name, chunk.level, chunk.number}; }

// The chunks of one fold.
class Roller {
 public:
  explicit Roller(const ReadChunk& read) : read_(read) {}

  absl::Status Add(SeriesChunkRow chunk) {
    full_.push_back(chunk);
    const Key key = KeyOf(chunk);
    chunks_[key] = std::move(chunk);
    while (!full_.empty()) {
      const SeriesChunkRow next = std::move(full_.front());
      full_.pop_front();
      if (next.level < kTopLevel) RETURN_IF_ERROR(Raise(next));
    }
    return absl::OkStatus();
  }

  std::vector<SeriesChunkRow> Take() {
    std::vector<SeriesChunkRow> rows;
    for (auto& [key, chunk] : chunks_) rows.push_back(std::move(chunk));
    return rows;
  }

 private:
  // Adds the buckets of a full chunk to the level above.
  absl::Status Raise(const SeriesChunkRow& full) {
    ASSIGN_OR_RETURN(const std::vector<Bucket> buckets, BucketsOf(full));
    const std::vector<Bucket> joined = Join(buckets, kLevelRatio);
    SeriesChunkRow above = {.run_id = full.run_id,
                            .name = full.name,
                            .level = full.level + 1,
                            .number = full.number / kLevelRatio,
                            .bytes = ""};
    const int64_t offset = full.number % kLevelRatio * kRolled;
    ASSIGN_OR_RETURN(std::vector<Bucket> all, Open(above, offset));
    all.insert(all.end(), joined.begin(), joined.end());
    above.first_step = offset == 0 ? full.first_step : above.first_step;
    above.last_step = full.last_step;
    above.num_buckets = static_cast<int64_t>(all.size());
    above.bytes = PackBuckets(all);
    if (above.num_buckets >= kChunkPoints) full_.push_back(above);
    const Key key = KeyOf(above);
    chunks_[key] = std::move(above);
    return absl::OkStatus();
  }

  // Returns the first `offset` buckets of a chunk and sets its first_step. A repeated fold may find
  // more buckets, which it makes again.
  absl::StatusOr<std::vector<Bucket>> Open(SeriesChunkRow& chunk, int64_t offset) {
    if (offset == 0) return std::vector<Bucket>();
    const auto found = chunks_.find(KeyOf(chunk));
    if (found == chunks_.end()) {
      ASSIGN_OR_RETURN(const std::optional<SeriesChunkRow> stored,
                       read_(chunk.name, chunk.level, chunk.number));
      // Without the stored part, the level begins here.
      if (!stored) return std::vector<Bucket>();
      return Begin(chunk, *stored, offset);
    }
    return Begin(chunk, found->second, offset);
  }

  static absl::StatusOr<std::vector<Bucket>> Begin(SeriesChunkRow& chunk,
                                                   const SeriesChunkRow& stored, int64_t offset) {
    chunk.first_step = stored.first_step;
    ASSIGN_OR_RETURN(std::vector<Bucket> buckets, BucketsOf(stored));
    if (static_cast<int64_t>(buckets.size()) > offset) buckets.resize(static_cast<size_t>(offset));
    return buckets;
  }

  const ReadChunk& read_;
  std::map<Key, SeriesChunkRow> chunks_;
  std::deque<SeriesChunkRow> full_;
};

}  // namespace

absl::StatusOr<std::vector<SeriesChunkRow>> RollUp(std::vector<SeriesChunkRow> sealed,
                                                   const ReadChunk& read) {
  Roller roller(read);
  for (SeriesChunkRow& chunk : sealed) RETURN_IF_ERROR(roller.Add(std::move(chunk)));
  return roller.Take();
}

std::vector<DroppedChunks> ChunksToDrop(const std::vector<SeriesChunkRow>& chunks,
                                        int64_t keep_points) {
  std::map<std::pair<std::string, int64_t>, int64_t> newest;
  for (const SeriesChunkRow& chunk : chunks) {
    int64_t& number = newest[{chunk.name, chunk.level}];
    number = std::max(number, chunk.number);
  }
  std::vector<DroppedChunks> dropped;
  for (const auto& [place, number] : newest) {
    const int64_t kept = std::max<int64_t>(1, (keep_points >> (2 * place.second)) / kChunkPoints);
    if (number < kept) continue;
    dropped.push_back(
        {.name = place.first, .level = place.second, .before_number = number - kept + 1});
  }
  return dropped;
}

}  // namespace lathe::engine
