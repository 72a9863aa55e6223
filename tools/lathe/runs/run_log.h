// Lines of `lathe logs`: what happened to a run, in the order of time.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/json/json.h"

namespace lathe::cli {

// Requests in an answer of ListRunRequests, at most: the bound of the API.
inline constexpr int kMaxLogRequests = 1000;

struct LogEntry {
  absl::Time time;
  std::string text;
  // The same for programs: {"type": "request", "checkpoint", "waiting" or "missing", …}.
  Json json;
};

// Remembers what it has returned, so that a repeated answer of the API adds only what is new.
class RunLog {
 public:
  // Unfinished requests are entries of their own only with `has_unfinished`. Without it, one that
  // has not finished for 10 s becomes an entry once, and another when it finishes.
  explicit RunLog(bool has_unfinished) : has_unfinished_(has_unfinished) {}

  // Takes an answer of ListRunRequests, and returns its new entries in the order of acceptance.
  std::vector<LogEntry> AddRequests(const Json& answer);
  // Takes the checkpoints of the run, and returns the new ones in the order of their times.
  std::vector<LogEntry> AddCheckpoints(const Json& answer);

  // True if `answer` of ListRunRequests with `limit` leaves no request out that AddRequests has not
  // seen the end of.
  bool IsWhole(const Json& answer, int limit) const;

  // True before the first AddCheckpoints, and if `answer` of ListRunRequests has a new request that
  // may have made a checkpoint.
  bool MayHaveSaved(const Json& answer) const;

 private:
  // Adds an entry if requests after the newest one may be missing.
  void AddMissing(const Json& answer, std::vector<LogEntry>& entries);

  const bool has_unfinished_;
  bool has_checkpoints_ = false;
  std::string complete_since_;
  // Acceptance of the newest request so far.
  absl::Time newest_ = absl::InfinitePast();
  // All requests accepted before this time have ended and were seen.
  absl::Time ended_before_ = absl::InfinitePast();
  // The newest requests that were entries, by time of acceptance and id: as many as an answer of
  // the API may have.
  std::set<std::pair<absl::Time, std::string>> finished_;
  // Requests of the last answer that waited long.
  std::set<std::string> waited_;
  std::set<std::string> checkpoints_;
};

// Sorts by time, and keeps the newest `count`.
std::vector<LogEntry> NewestEntries(std::vector<LogEntry> entries, int count);

}  // namespace lathe::cli
