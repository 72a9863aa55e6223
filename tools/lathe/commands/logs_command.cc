#include "tools/lathe/commands/logs_command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/api_options.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/runs/run_log.h"
#include "tools/lathe/runs/run_reader.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {
namespace {

constexpr int kDefaultLines = 100;
constexpr int kMaxLines = kMaxLogRequests;
// Asked for again and again. More are asked for if all of them are new.
constexpr int kFewRequests = 50;
constexpr absl::Duration kFollowPeriod = absl::Seconds(1);
// The server spends at most about this part of the time on answers to a follower.
constexpr int kReadShare = 5;
constexpr absl::Duration kMaxOutagePause = absl::Seconds(30);

struct LogsOptions {
  ApiOptions api;
  std::string run_id;
  int lines = kDefaultLines;
  bool is_following = false;
  bool is_json = false;
};

// True for an error that a repetition may not meet.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

// False once nobody reads standard output any more.
bool HasReader() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  poll(&output, 1, 0);
  return std::ferror(stdout) == 0 && (output.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

class LogPrinter {
 public:
  LogPrinter(const LogsOptions& options, ApiClient& api)
      : options_(options), api_(api), log_(/*has_unfinished=*/!options.is_following) {}

  // Prints the newest lines.
  absl::Status PrintNewest() {
    ASSIGN_OR_RETURN(std::vector<LogEntry> entries, ReadNew());
    Print(NewestEntries(std::move(entries), options_.lines));
    return absl::OkStatus();
  }

  // Prints what happens until a signal comes or nobody reads any more. Returns only errors that do
  // not pass.
  absl::Status Follow(Signals& signals) {
    absl::Duration pause = kFollowPeriod;
    while (HasReader() && signals.Wait(pause) != SignalEvent::kStop) {
      const absl::Time begin = SteadyNow();
      absl::StatusOr<std::vector<LogEntry>> entries = ReadNew();
      const absl::Duration rest = (SteadyNow() - begin) * (kReadShare - 1);
      if (absl::IsCancelled(entries.status())) break;
      if (!entries.ok() && !IsPassing(entries.status())) return entries.status();
      pause = entries.ok() ? std::max(kFollowPeriod, rest) : PauseAfter(entries.status());
      if (!entries.ok()) continue;
      SayRecovered();
      Print(NewestEntries(*std::move(entries), kMaxLines));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<LogEntry>> ReadNew() {
    ASSIGN_OR_RETURN(const Json requests, ReadNewRequests());
    std::optional<Json> checkpoints;
    const bool may_have_saved = log_.MayHaveSaved(requests);
    if (may_have_saved) {
      ASSIGN_OR_RETURN(checkpoints,
                       api_.Get(absl::StrCat("training_runs/", options_.run_id, "/checkpoints"),
                                SteadyNow() + kApiCallTimeout));
    }
    std::vector<LogEntry> entries = log_.AddRequests(requests);
    if (checkpoints) {
      std::vector<LogEntry> saved = log_.AddCheckpoints(*checkpoints);
      std::move(saved.begin(), saved.end(), std::back_inserter(entries));
    }
    return entries;
  }

  absl::StatusOr<Json> ReadNewRequests() {
    if (!options_.is_following) return ReadRequests(api_, options_.run_id, options_.lines);
    if (has_read_) {
      ASSIGN_OR_RETURN(Json few, ReadRequests(api_, options_.run_id, kFewRequests));
      if (log_.IsWhole(few, kFewRequests)) return few;
    }
    has_read_ = true;
    return ReadRequests(api_, options_.run_id, kMaxLogRequests);
  }

  void Print(const std::vector<LogEntry>& entries) const {
    for (const LogEntry& entry : entries) {
      std::printf("%s\n",
                  options_.is_json ? AsciiJsonText(entry.json).c_str() : entry.text.c_str());
    }
    std::fflush(stdout);
  }

  // Says once that the server is away. Returns how long to wait: twice as long each time, and never
  // less than the server asked for.
  absl::Duration PauseAfter(const absl::Status& status) {
    if (num_failures_ == 0) {
      away_since_ = SteadyNow();
      std::fprintf(stderr, "no answer since %s: %s; asking again\n",
                   absl::FormatTime("%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()).c_str(),
                   std::string(status.message()).c_str());
    }
    const int doublings = std::min(num_failures_++, 5);
    return std::max(RetryAfter(status),
                    std::min(kMaxOutagePause, kFollowPeriod * (1 << doublings)));
  }

  void SayRecovered() {
    if (num_failures_ == 0) return;
    num_failures_ = 0;
    std::fprintf(stderr, "the server answers again, after %lld s\n",
                 static_cast<long long>(absl::ToInt64Seconds(SteadyNow() - away_since_)));
  }

  const LogsOptions& options_;
  ApiClient& api_;
  RunLog log_;
  bool has_read_ = false;
  int num_failures_ = 0;
  absl::Time away_since_;
};

// OptionSet knows long flags only.
std::vector<const char*> WithLongFlags(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  for (const char*& word : words) {
    if (std::string_view(word) == "-f") word = "--follow";
  }
  return words;
}

}  // namespace

absl::Status LogsCommand(int argc, const char* const* argv) {
  LogsOptions options;
  OptionSet set(
      "lathe logs",
      "Shows what happened to a training run, in the order of time: its requests with the "
      "seconds of their\nstages, and its checkpoints.");
  AddApiOptions(set, options.api);
  set.Add(&options.is_following, "logs.follow", false,
          "show what happens from now on, too, until Ctrl-C; -f for short");
  set.Add(&options.lines, "logs.lines", kDefaultLines,
          absl::StrCat("newest lines to show at most, 1 to ", kMaxLines));
  set.Add(&options.is_json, "logs.json", false, "print a JSON object a line");
  set.AddPositional(&options.run_id, "RUN", "as `lathe runs` shows it");
  const std::vector<const char*> words = WithLongFlags(argc, argv);
  RETURN_IF_ERROR(set.Parse(static_cast<int>(words.size()), words.data()));
  RETURN_IF_ERROR(CheckId("RUN", options.run_id));
  if (options.lines < 1 || options.lines > kMaxLines) {
    return UsageError(absl::StrCat("lines is ", options.lines, ", expected 1 to ", kMaxLines));
  }
  ASSIGN_OR_RETURN(ApiClient api, OpenApi(options.api));
  LogPrinter printer(options, api);
  if (!options.is_following) return printer.PrintNewest();
  Signals signals;
  // A server that closes a connection must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  api.SetLimits(absl::InfiniteFuture(),
                [&signals] { return signals.Wait(absl::ZeroDuration()) == SignalEvent::kStop; });
  RETURN_IF_ERROR(printer.PrintNewest());
  return printer.Follow(signals);
}

}  // namespace lathe::cli
