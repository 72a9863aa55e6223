#include "services/worker/collectives/flight_recorder.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace lathe::worker {
namespace {

template <size_t kSize>
void Keep(std::string_view text, char (&target)[kSize]) {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(target, text.data(), size);
  target[size] = '\0';
}

}  // namespace

FlightRecorder::Id FlightRecorder::Queued(const RecordedCollective& collective) {
  const absl::Time now = absl::Now();
  absl::MutexLock lock(&mu_);
  const Id id = ++last_id_;
  Entry& entry = entries_[id % entries_.size()];
  entry = {.id = id,
           .number = collective.number,
           .num_elements = collective.num_elements,
           .queued = now};
  Keep(collective.axis, entry.axis);
  Keep(collective.kind, entry.kind);
  Keep(collective.name, entry.name);
  Keep(collective.dtype, entry.dtype);
  return id;
}

void FlightRecorder::Started(Id id) {
  absl::MutexLock lock(&mu_);
  Entry* entry = FindLocked(id);
  if (entry == nullptr || entry->state != State::kQueued) return;
  entry->state = State::kStarted;
  entry->started = absl::Now();
}

void FlightRecorder::Done(Id id) { End(id, State::kDone); }

void FlightRecorder::Failed(Id id) { End(id, State::kFailed); }

void FlightRecorder::End(Id id, State state) {
  absl::MutexLock lock(&mu_);
  Entry* entry = FindLocked(id);
  if (entry == nullptr) return;
  if (entry->state == State::kQueued) entry->started = absl::Now();
  entry->state = state;
  entry->ended = absl::Now();
}

FlightRecorder::Entry* FlightRecorder::FindLocked(Id id) {
  Entry& entry = entries_[id % entries_.size()];
  return entry.id == id ? &entry : nullptr;
}

std::string FlightRecorder::Dump() const {
  absl::MutexLock lock(&mu_);
  const Id kept = std::min<Id>(last_id_, entries_.size());
  std::string text =
      absl::StrCat("the last ", kept, " of ", last_id_, " collectives, oldest first\n");
  for (Id id = last_id_ - kept + 1; id <= last_id_; ++id) {
    absl::StrAppend(&text, Describe(entries_[id % entries_.size()]), "\n");
  }
  return text;
}

std::string FlightRecorder::Describe(const Entry& entry) {
  std::string line = absl::StrFormat(
      "%s %s #%d %s %s %s x %d", absl::FormatTime("%H:%M:%E6S", entry.queued, absl::UTCTimeZone()),
      entry.axis, entry.number, entry.kind, entry.name, entry.dtype, entry.num_elements);
  const auto after = [&entry](absl::Time time) {
    return absl::StrFormat("+%.6fs", absl::ToDoubleSeconds(time - entry.queued));
  };
  if (entry.state == State::kQueued) return absl::StrCat(line, " queued");
  absl::StrAppend(&line, " started ", after(entry.started));
  if (entry.state == State::kDone) absl::StrAppend(&line, " done ", after(entry.ended));
  if (entry.state == State::kFailed) absl::StrAppend(&line, " failed ", after(entry.ended));
  return line;
}

}  // namespace lathe::worker
