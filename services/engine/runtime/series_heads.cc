#include "services/engine/runtime/series_heads.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/series/chunk.h"
#include "services/engine/series/metric_names.h"
#include "services/engine/series/run_series.h"

namespace lathe::engine {
namespace {

absl::Status Refuse(const char* code, const std::string& field, const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), code, field);
}

std::string FieldOf(size_t index, const char* member) {
  return absl::StrFormat("points[%d].%s", index, member);
}

bool Has(const PointEntry& entry, const NamedPoint& point) {
  return std::any_of(entry.points.begin(), entry.points.end(), [&](const NamedPoint& one) {
    return one.step == point.step && one.value == point.value && one.name == point.name;
  });
}

}  // namespace

absl::Status SeriesHeads::Append(PointEntry entry, const Enqueue& enqueue) {
  if (book_.is_full(entry.tenant_id)) {
    return WithDetail(absl::ResourceExhaustedError("too many points wait to be stored; try again"),
                      "too_many_points", "points");
  }
  int64_t room = std::numeric_limits<int64_t>::max();
  if (options_.max_series_per_tenant > 0) {
    ASSIGN_OR_RETURN(const int64_t count, book_.NumSeriesOf(entry.tenant_id));
    room = std::max<int64_t>(0, options_.max_series_per_tenant - count);
  }
  // A metric that is not known may be one of a result that has come since.
  if (!IsKnown(entry)) RETURN_IF_ERROR(Refresh(entry.run_id));
  bool may_repeat = true;
  for (;;) {
    std::vector<size_t> old;
    {
      absl::MutexLock lock(&mu_);
      const auto found = runs_.find(entry.run_id);
      if (found == runs_.end()) return absl::UnavailableError("too many runs append points");
      ASSIGN_OR_RETURN(const auto moved, CheckLocked(found->second, entry, room, old));
      if (old.empty()) {
        const auto checked = std::make_shared<const PointEntry>(std::move(entry));
        RETURN_IF_ERROR(enqueue(checked));
        for (const auto& [name, head] : moved) found->second.heads[name] = head;
        found->second.in_flight.push_back(checked);
        return absl::OkStatus();
      }
    }
    if (!may_repeat) {
      const NamedPoint& point = entry.points[old.front()];
      return Refuse("bad_step", FieldOf(old.front(), "step"),
                    absl::StrFormat("step of '%s' is %d, and another call has appended a later one",
                                    point.name, point.step));
    }
    RETURN_IF_ERROR(DropStored(entry, old));
    may_repeat = false;
  }
}

void SeriesHeads::Release(const PointEntryPtr& entry) {
  absl::MutexLock lock(&mu_);
  const auto found = runs_.find(entry->run_id);
  if (found != runs_.end()) found->second.in_flight.remove(entry);
}

bool SeriesHeads::IsKnown(const PointEntry& entry) {
  absl::MutexLock lock(&mu_);
  const auto found = runs_.find(entry.run_id);
  if (found == runs_.end()) return false;
  ages_.splice(ages_.end(), ages_, found->second.age);
  const std::map<std::string, Head>& heads = found->second.heads;
  return std::all_of(entry.points.begin(), entry.points.end(),
                     [&](const NamedPoint& point) { return heads.contains(point.name); });
}

absl::Status SeriesHeads::Refresh(const std::string& run_id) {
  ASSIGN_OR_RETURN(auto heads, Load(run_id));
  absl::MutexLock lock(&mu_);
  MergeLocked(run_id, std::move(heads));
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, SeriesHeads::Head>> SeriesHeads::Load(
    const std::string& run_id) {
  // Pending batches are read first. Then each point is in one of them, or in the store.
  const std::vector<RunBatch> pending = book_.PendingOf(run_id);
  ASSIGN_OR_RETURN(std::optional<RunSeriesRow> row, store_.FindRunSeries(run_id));
  RunSeries series(row ? *std::move(row) : RunSeriesRow{.run_id = run_id, .tenant_id = ""});
  ASSIGN_OR_RETURN(std::vector<SeriesRow> rows, store_.ListSeries(run_id, /*with_tails=*/false));
  for (SeriesRow& one : rows) RETURN_IF_ERROR(series.Add(std::move(one)));
  for (const RunBatch& batch : pending) series.Apply(batch, kMaxSeriesPerRun);
  std::map<std::string, Head> heads;
  for (const auto& [name, one] : series.series()) {
    heads[name] = {.last_step = one.row.last_step, .source = one.row.source};
  }
  return heads;
}

void SeriesHeads::MergeLocked(const std::string& run_id, std::map<std::string, Head> heads) {
  const auto [found, is_new] = runs_.try_emplace(run_id);
  found->second.heads.merge(heads);
  if (is_new) {
    found->second.age = ages_.insert(ages_.end(), run_id);
  } else {
    ages_.splice(ages_.end(), ages_, found->second.age);
  }
  for (auto age = ages_.begin(); runs_.size() > kMaxRuns && std::next(age) != ages_.end();) {
    const auto oldest = runs_.find(*age);
    if (!oldest->second.in_flight.empty()) {
      ++age;
      continue;
    }
    runs_.erase(oldest);
    age = ages_.erase(age);
  }
}

absl::StatusOr<std::map<std::string, SeriesHeads::Head>> SeriesHeads::CheckLocked(
    const Run& run, const PointEntry& entry, int64_t tenant_room, std::vector<size_t>& old) {
  std::map<std::string, Head> moved;
  int64_t num_new = 0;
  const int64_t num_users = std::count_if(run.heads.begin(), run.heads.end(), [](const auto& one) {
    return one.second.source == SeriesSource::kUsers;
  });
  for (size_t i = 0; i < entry.points.size(); ++i) {
    const NamedPoint& point = entry.points[i];
    auto head = moved.find(point.name);
    if (head == moved.end()) {
      const auto known = run.heads.find(point.name);
      if (known == run.heads.end()) {
        ++num_new;
        const auto total = static_cast<int64_t>(run.heads.size()) + num_new;
        if (num_users + num_new > kMaxUserSeriesPerRun) {
          return Refuse(
              "too_many_metrics", FieldOf(i, "name"),
              absl::StrFormat("'%s' would be metric %d of programs in the run, limit is %d",
                              point.name, num_users + num_new, kMaxUserSeriesPerRun));
        }
        if (total > kMaxSeriesPerRun) {
          return Refuse("too_many_metrics", FieldOf(i, "name"),
                        absl::StrFormat("'%s' would be metric %d of the run, limit is %d",
                                        point.name, total, kMaxSeriesPerRun));
        }
        if (num_new > tenant_room) {
          return Refuse("too_many_metrics", FieldOf(i, "name"),
                        absl::StrFormat("the metrics of all runs are %d, limit is %d",
                                        options_.max_series_per_tenant - tenant_room + num_new,
                                        options_.max_series_per_tenant));
        }
        moved[point.name] = {.last_step = point.step};
        continue;
      }
      if (known->second.source == SeriesSource::kResults) {
        return Refuse(
            "reserved_metric", FieldOf(i, "name"),
            absl::StrFormat("the server writes '%s' itself: choose another name", point.name));
      }
      head = moved.emplace(point.name, known->second).first;
    }
    if (point.step < head->second.last_step) {
      old.push_back(i);
      continue;
    }
    head->second.last_step = point.step;
  }
  return moved;
}

absl::Status SeriesHeads::DropStored(PointEntry& entry, const std::vector<size_t>& old) {
  std::map<std::string, std::vector<Point>> recent;
  std::vector<NamedPoint> kept;
  size_t next_old = 0;
  for (size_t i = 0; i < entry.points.size(); ++i) {
    const NamedPoint& point = entry.points[i];
    if (next_old == old.size() || old[next_old] != i) {
      kept.push_back(point);
      continue;
    }
    ++next_old;
    ASSIGN_OR_RETURN(const bool is_stored, IsStored(entry.run_id, point, recent));
    if (is_stored) continue;
    return Refuse("bad_step", FieldOf(i, "step"),
                  absl::StrFormat("step of '%s' is %d, and a later step has a point: steps of a "
                                  "metric must not go back",
                                  point.name, point.step));
  }
  entry.points = std::move(kept);
  return absl::OkStatus();
}

absl::StatusOr<bool> SeriesHeads::IsStored(const std::string& run_id, const NamedPoint& point,
                                           std::map<std::string, std::vector<Point>>& recent) {
  {
    absl::MutexLock lock(&mu_);
    const auto run = runs_.find(run_id);
    if (run != runs_.end()) {
      for (const PointEntryPtr& entry : run->second.in_flight) {
        if (Has(*entry, point)) return true;
      }
    }
  }
  auto found = recent.find(point.name);
  if (found == recent.end()) {
    ASSIGN_OR_RETURN(std::vector<Point> points, RecentOf(run_id, point.name));
    found = recent.emplace(point.name, std::move(points)).first;
  }
  return std::any_of(found->second.begin(), found->second.end(), [&](const Point& one) {
    return one.step == point.step && one.value == point.value;
  });
}

absl::StatusOr<std::vector<Point>> SeriesHeads::RecentOf(const std::string& run_id,
                                                         const std::string& name) {
  std::vector<Point> points;
  for (const RunBatch& batch : book_.PendingOf(run_id)) {
    for (const PointEntryPtr& entry : batch.entries) {
      for (const NamedPoint& point : entry->points) {
        if (point.name != name) continue;
        points.push_back({.step = point.step, .unix_ms = point.unix_ms, .value = point.value});
      }
    }
  }
  ASSIGN_OR_RETURN(const std::optional<SeriesRow> row, store_.FindSeries(run_id, name));
  if (!row) return points;
  ASSIGN_OR_RETURN(const std::vector<Point> tail, UnpackPoints(row->tail));
  points.insert(points.end(), tail.begin(), tail.end());
  if (row->num_sealed == 0) return points;
  const int64_t newest = row->num_sealed / kChunkPoints - 1;
  ASSIGN_OR_RETURN(const std::vector<SeriesChunkRow> chunks,
                   store_.ReadSeriesChunks(run_id, name, /*level=*/0,
                                           {.from_number = newest,
                                            .before_number = newest + 1,
                                            .from_step = std::numeric_limits<int64_t>::min(),
                                            .to_step = std::numeric_limits<int64_t>::max()}));
  for (const SeriesChunkRow& chunk : chunks) {
    ASSIGN_OR_RETURN(const std::vector<Point> sealed, UnpackPoints(chunk.bytes));
    points.insert(points.end(), sealed.begin(), sealed.end());
  }
  return points;
}

}  // namespace lathe::engine
