#include "tools/lathe/runs/run_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/lathe/runs/run_list.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

constexpr double kLongSeconds = 10;
// Shorter stages are left out of the text.
constexpr double kShownSeconds = 0.0005;
constexpr char kNoTime[] = "1970-01-01T00:00:00Z";

absl::Time TimeOf(const std::string& text) {
  absl::Time time = absl::UnixEpoch();
  std::string error;
  absl::ParseTime(absl::RFC3339_full, text.empty() ? kNoTime : text, &time, &error);
  return time;
}

absl::Time AcceptedAt(const Json& request) { return TimeOf(TextMember(request, "accepted_at")); }

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3SZ", time, absl::UTCTimeZone());
}

int64_t IntMember(const Json& object, const std::string& key) {
  return JsonInt(object, key).value_or(0);
}

double SecondsMember(const Json& object) { return JsonNumber(object, "seconds").value_or(0); }

// Returns the name of the stage that has not ended, and its seconds.
std::string LastStage(const Json& request) {
  const Json& stages = Member(request, "stages");
  if (!stages.is_array() || stages.empty()) return "accepted";
  return absl::StrFormat("%s for %.1f s", SafeText(TextMember(stages.back(), "name")),
                         SecondsMember(stages.back()));
}

std::string StagesText(const Json& request) {
  const Json& stages = Member(request, "stages");
  std::string text;
  if (!stages.is_array()) return text;
  for (const Json& stage : stages) {
    const double seconds = SecondsMember(stage);
    if (seconds < kShownSeconds) continue;
    absl::StrAppendFormat(&text, "%s%s %.3f", text.empty() ? "" : ", ",
                          SafeText(TextMember(stage, "name")), seconds);
  }
  return text.empty() ? text : absl::StrCat(" (", text, ")");
}

std::string RequestName(const Json& request) {
  const int64_t seq_id = IntMember(request, "seq_id");
  const std::string operation = SafeText(TextMember(request, "operation"));
  return seq_id > 0 ? absl::StrCat(operation, " seq ", seq_id) : operation;
}

// Returns what is worth saying about a request besides its times.
std::string Remarks(const Json& request) {
  std::string text;
  if (const int64_t tokens = IntMember(request, "tokens"); tokens > 0) {
    absl::StrAppend(&text, ", ", tokens, " tokens");
  }
  const std::string group = TextMember(request, "group");
  if (!group.empty()) absl::StrAppend(&text, ", group ", SafeText(group));
  if (const int64_t num = IntMember(request, "num_dispatches"); num > 1) {
    absl::StrAppend(&text, ", sent to a worker ", num, " times: a worker or its stream was lost");
  }
  return text;
}

LogEntry EntryOf(absl::Time time, const char* type, const std::string& text, Json json) {
  json["type"] = type;
  return {.time = time, .text = absl::StrCat(TimeText(time), "  ", text), .json = std::move(json)};
}

LogEntry FinishedEntry(const Json& request) {
  const absl::Time time = TimeOf(TextMember(request, "accepted_at"));
  return EntryOf(time, "request",
                 absl::StrCat(RequestName(request), ": ", SafeText(TextMember(request, "outcome")),
                              absl::StrFormat(" in %.3f s", SecondsMember(request)),
                              StagesText(request), Remarks(request)),
                 request);
}

LogEntry WaitingEntry(const Json& request) {
  const absl::Time time = TimeOf(TextMember(request, "accepted_at"));
  return EntryOf(time, "waiting",
                 absl::StrCat(RequestName(request), ": not finished after ",
                              absl::StrFormat("%.1f s, ", SecondsMember(request)),
                              LastStage(request), Remarks(request)),
                 request);
}

LogEntry CheckpointEntry(const Json& checkpoint) {
  const absl::Time time = TimeOf(TextMember(checkpoint, "time"));
  const absl::StatusOr<bool> is_missing = JsonBool(checkpoint, "missing");
  return EntryOf(time, "checkpoint",
                 absl::StrCat("checkpoint ", SafeText(TextMember(checkpoint, "tinker_path")), ", ",
                              IntMember(checkpoint, "size_bytes"), " bytes",
                              is_missing.value_or(false) ? ", its files are gone" : ""),
                 checkpoint);
}

}  // namespace

void RunLog::AddMissing(const Json& answer, std::vector<LogEntry>& entries) {
  const std::string until = TextMember(answer, "complete_since");
  if (until.empty() || until == complete_since_) return;
  complete_since_ = until;
  // In a long run the time moves on with each request, though all of them have been seen.
  if (TimeOf(until) <= newest_) return;
  entries.push_back(EntryOf(TimeOf(until), "missing",
                            "requests before this may be missing: the engine keeps the newest of "
                            "each session, and none over a restart",
                            {{"until", until}}));
}

bool RunLog::IsWhole(const Json& answer, int limit) const {
  const Json& list = Member(answer, "requests");
  return !list.is_array() || static_cast<int>(list.size()) < limit ||
         AcceptedAt(list.back()) < ended_before_;
}

bool RunLog::MayHaveSaved(const Json& answer) const {
  const Json& list = Member(answer, "requests");
  return !has_checkpoints_ ||
         (list.is_array() && std::any_of(list.begin(), list.end(), [this](const Json& request) {
            return TextMember(request, "operation").starts_with("save") &&
                   TextMember(request, "outcome") != "unfinished" &&
                   !finished_.contains({AcceptedAt(request), TextMember(request, "request_id")});
          }));
}

std::vector<LogEntry> RunLog::AddRequests(const Json& answer) {
  std::vector<LogEntry> entries;
  AddMissing(answer, entries);
  const Json& list = Member(answer, "requests");
  if (!list.is_array()) return entries;
  std::set<std::string> waited;
  absl::Time oldest_unfinished = absl::InfiniteFuture();
  for (auto request = list.rbegin(); request != list.rend(); ++request) {
    const std::string id = TextMember(*request, "request_id");
    const absl::Time accepted_at = AcceptedAt(*request);
    newest_ = std::max(newest_, accepted_at);
    if (TextMember(*request, "outcome") != "unfinished") {
      if (finished_.emplace(accepted_at, id).second) entries.push_back(FinishedEntry(*request));
      continue;
    }
    oldest_unfinished = std::min(oldest_unfinished, accepted_at);
    const bool is_entry = has_unfinished_ || SecondsMember(*request) >= kLongSeconds;
    if (is_entry && !waited_.contains(id)) entries.push_back(WaitingEntry(*request));
    if (is_entry || waited_.contains(id)) waited.insert(id);
  }
  while (finished_.size() > kMaxLogRequests) finished_.erase(finished_.begin());
  waited_ = std::move(waited);
  ended_before_ = std::min(newest_, oldest_unfinished);
  return entries;
}

std::vector<LogEntry> RunLog::AddCheckpoints(const Json& answer) {
  has_checkpoints_ = true;
  std::vector<LogEntry> entries;
  const Json& list = Member(answer, "checkpoints");
  if (!list.is_array()) return entries;
  std::set<std::string> present;
  for (const Json& checkpoint : list) {
    const std::string path = TextMember(checkpoint, "tinker_path");
    if (!checkpoints_.contains(path)) entries.push_back(CheckpointEntry(checkpoint));
    present.insert(path);
  }
  checkpoints_ = std::move(present);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LogEntry& a, const LogEntry& b) { return a.time < b.time; });
  return entries;
}

std::vector<LogEntry> NewestEntries(std::vector<LogEntry> entries, int count) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LogEntry& a, const LogEntry& b) { return a.time < b.time; });
  const auto num_old = static_cast<std::ptrdiff_t>(entries.size()) - count;
  if (num_old > 0) entries.erase(entries.begin(), entries.begin() + num_old);
  return entries;
}

}  // namespace lathe::cli
