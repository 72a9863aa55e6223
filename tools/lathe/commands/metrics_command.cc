#include "tools/lathe/commands/metrics_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/metrics_log/metrics_log.h"
#include "tools/lathe/selftest/api_client.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kMetricsCallTime = absl::Seconds(20);
constexpr absl::Duration kFirstMetricsPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestMetricsPause = absl::Seconds(10);
// Points of a call; the server takes 1,000.
constexpr size_t kPointsPerCall = 1000;
constexpr size_t kLinesPerRead = 256;
// End of the name of a file beside a log, which has the run that the log is sent to.
constexpr char kRunNote[] = ".lathe_run";
constexpr char kDefaultMetricsUrl[] = "http://127.0.0.1:8080";

// Options of both actions.
struct ApiFlags {
  std::string url;
  std::string api_key;
  std::string ca;

  void AddTo(OptionSet& options) {
    options.Add(&url, "metrics.url", "",
                "http[s]://HOST[:PORT] of the API; empty: TINKER_BASE_URL of the environment, else "
                "http://127.0.0.1:8080");
    options.Add(&api_key, "metrics.api_key", "",
                "API key with the scopes train and read; empty: TINKER_API_KEY of the environment",
                {.secret = true});
    options.Add(&ca, "metrics.ca", "",
                "PEM file of the authority that signed the API's certificate; empty: the system's");
  }

  absl::StatusOr<ApiClient> Open() const {
    const auto given = [](const std::string& option, const char* variable) {
      const char* const value = option.empty() ? std::getenv(variable) : nullptr;
      return value == nullptr ? option : std::string(value);
    };
    const std::string key = given(api_key, "TINKER_API_KEY");
    if (key.empty()) {
      return WithDetail(
          absl::InvalidArgumentError("no API key: set TINKER_API_KEY or give --api-key-file"),
          "usage");
    }
    std::string address = given(url, "TINKER_BASE_URL");
    if (address.empty()) address = kDefaultMetricsUrl;
    ASSIGN_OR_RETURN(ApiUrl parsed, ParseApiUrl(std::move(address)));
    absl::StatusOr<ApiClient> api = ApiClient::Create(std::move(parsed), ca, key);
    if (!api.ok()) return WithDetail(api.status(), "configuration");
    return api;
  }
};

bool IsRunIdCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:-").find(c) != std::string_view::npos;
}

// Returns the path of a run's metrics below /api/v1.
absl::StatusOr<std::string> MetricsPathOf(const std::string& run) {
  if (!run.empty() && std::all_of(run.begin(), run.end(), IsRunIdCharacter)) {
    return absl::StrCat("training_runs/", run, "/metrics");
  }
  return WithDetail(
      absl::InvalidArgumentError(
          "the run is no id: expected one as the training program prints it, SESSION:train:0"),
      "usage");
}

// True if the same call may succeed later: the server restarts, or has too much to do.
bool IsPassingFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::StartsWith(status.message(), "answered 5") ||
         absl::StartsWith(status.message(), "answered 429");
}

// Sends the lines of a log to a run.
class LogFollower {
 public:
  // `run`: empty for the one of an earlier start. Without one, it is the newest run when the log
  // gets its first line.
  LogFollower(ApiClient& api, std::string run, const std::filesystem::path& file, Signals& signals)
      : api_(api),
        run_(std::move(run)),
        note_(std::filesystem::path(file).concat(kRunNote)),
        tail_(file),
        signals_(signals) {}

  // Returns once a signal has come; with `once`, also at the end of the file.
  absl::Status Run(bool once, absl::Duration period) {
    ASSIGN_OR_RETURN(std::vector<std::string> lines, tail_.Read(kLinesPerRead));
    if (run_.empty()) run_ = ReadNote();
    if (run_.empty()) {
      if (!lines.empty() || once) return RefuseToGuess();
      ASSIGN_OR_RETURN(lines, AwaitLines(period));
      if (is_stopped_) return absl::OkStatus();
      RETURN_IF_ERROR(TakeNewestRun());
    }
    ASSIGN_OR_RETURN(path_, MetricsPathOf(run_));
    ASSIGN_OR_RETURN(const Json heads, Patiently([this] {
                       return api_.Get(path_ + "?points=0", SteadyNow() + kMetricsCallTime);
                     }));
    if (!is_stopped_) WriteNote();
    filter_ = PointFilter(heads);
    while (!is_stopped_) {
      std::vector<LogPoint> points;
      for (const std::string& line : lines) {
        for (LogPoint& point : PointsOfLine(line)) points.push_back(std::move(point));
      }
      RETURN_IF_ERROR(Send(std::move(points)));
      if (lines.empty() && once) break;
      if (lines.empty()) Wait(period);
      ASSIGN_OR_RETURN(lines, tail_.Read(kLinesPerRead));
    }
    std::printf("sent %s points\n", absl::StrCat(num_sent_).c_str());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<std::string>> AwaitLines(absl::Duration period) {
    for (;;) {
      Wait(period);
      ASSIGN_OR_RETURN(std::vector<std::string> lines, tail_.Read(kLinesPerRead));
      if (!lines.empty() || is_stopped_) return lines;
    }
  }

  // The lines may be of any run, and points of another one could not be taken back.
  absl::Status RefuseToGuess() const {
    return WithDetail(
        absl::InvalidArgumentError(
            "the log has lines from before, or is read only once: name its run with --run"),
        "usage");
  }

  // Returns the run that an earlier start has noted beside the log; empty: none.
  std::string ReadNote() const {
    const absl::StatusOr<std::string> text = ReadTextFile(note_);
    return text.ok() ? *text : "";
  }

  void WriteNote() const {
    if (ReadNote() == run_) return;
    const absl::Status status = WriteFileAtomically(note_, run_ + "\n", 0644);
    if (status.ok()) return;
    std::fprintf(stderr, "the next start needs --run, because the run cannot be noted: %s\n",
                 std::string(status.message()).c_str());
  }

  absl::Status TakeNewestRun() {
    ASSIGN_OR_RETURN(const Json answer, Patiently([this] {
                       return api_.Get("training_runs?limit=1", SteadyNow() + kMetricsCallTime);
                     }));
    if (is_stopped_) return absl::OkStatus();
    const auto runs = answer.find("training_runs");
    if (runs == answer.end() || !runs->is_array() || runs->empty()) {
      return WithDetail(absl::NotFoundError("the key's tenant has no training run yet"), "usage");
    }
    ASSIGN_OR_RETURN(run_, JsonString(runs->front(), "training_run_id"));
    std::printf("follows into the newest run, %s\n", run_.c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  absl::Status Send(std::vector<LogPoint> points) {
    points = filter_.Keep(std::move(points));
    for (size_t begin = 0; begin < points.size() && !is_stopped_; begin += kPointsPerCall) {
      const size_t end = std::min(points.size(), begin + kPointsPerCall);
      RETURN_IF_ERROR(SendCall({points.begin() + static_cast<int64_t>(begin),
                                points.begin() + static_cast<int64_t>(end)}));
    }
    return absl::OkStatus();
  }

  absl::Status SendCall(std::vector<LogPoint> points) {
    while (!(points = filter_.Keep(std::move(points))).empty()) {
      const absl::StatusOr<Json> answer = Patiently(
          [&] { return api_.Post(path_, BodyOf(points), SteadyNow() + kMetricsCallTime); });
      if (is_stopped_) return absl::OkStatus();
      if (answer.ok()) {
        filter_.Took(points);
        num_sent_ += static_cast<int64_t>(points.size());
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(LeaveOut(points, answer.status()));
    }
    return absl::OkStatus();
  }

  // Programs log what the server has told them, under the same names: those are there already.
  // Returns `refusal` if it has another reason.
  absl::Status LeaveOut(const std::vector<LogPoint>& points, const absl::Status& refusal) {
    const std::string text(refusal.message());
    const int64_t index = RefusedIndex(text);
    const bool is_known =
        absl::StrContains(text, "reserved_metric") || absl::StrContains(text, "too_many_metrics");
    if (!is_known || index < 0 || index >= static_cast<int64_t>(points.size())) return refusal;
    const std::string& name = points[static_cast<size_t>(index)].name;
    std::fprintf(stderr, "'%s' is left out: %s\n", name.c_str(), text.c_str());
    filter_.LeaveOut(name);
    return absl::OkStatus();
  }

  // Repeats `call` until it succeeds, is refused, or a signal has come.
  template <typename Call>
  absl::StatusOr<Json> Patiently(const Call& call) {
    absl::Duration pause = kFirstMetricsPause;
    bool is_told = false;
    for (;;) {
      const absl::StatusOr<Json> answer = call();
      if (answer.ok() || !IsPassingFailure(answer.status())) return answer;
      if (!std::exchange(is_told, true)) {
        std::fprintf(stderr, "the server is away and is tried again: %s\n",
                     std::string(answer.status().message()).c_str());
      }
      Wait(pause);
      if (is_stopped_) return Json::object();
      pause = std::min(2 * pause, kLongestMetricsPause);
    }
  }

  void Wait(absl::Duration duration) {
    if (signals_.Wait(duration) == SignalEvent::kStop) is_stopped_ = true;
  }

  ApiClient& api_;
  std::string run_;
  std::string path_;  // of the run's metrics
  const std::filesystem::path note_;
  LogTail tail_;
  Signals& signals_;
  PointFilter filter_ = PointFilter(Json::object());
  bool is_stopped_ = false;
  int64_t num_sent_ = 0;
};

absl::Status FollowLog(int argc, const char* const* argv) {
  ApiFlags api_flags;
  std::string log_path, run;
  bool once = false;
  absl::Duration period;
  OptionSet options("lathe metrics follow",
                    "Appends the numbers of LOG_PATH/metrics.jsonl to a run, as they are written. "
                    "Survives restarts of the\nserver; a second start sends nothing twice.");
  options.AddPositional(&log_path, "LOG_PATH", "log folder of tinker-cookbook, or a .jsonl file");
  options.Add(
      &run, "metrics.run", "",
      "id of the training run; empty: that of the start before, else the newest one when the "
      "log gets its first line");
  options.Add(&once, "metrics.once", false, "ends at the end of the file");
  options.Add(&period, "metrics.period", absl::Seconds(1), "time between two looks at the file");
  api_flags.AddTo(options);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  if (!run.empty()) RETURN_IF_ERROR(MetricsPathOf(run).status());
  ASSIGN_OR_RETURN(ApiClient api, api_flags.Open());
  Signals signals;
  LogFollower follower(api, run, MetricsFileOf(log_path), signals);
  return follower.Run(once, std::max(period, absl::Milliseconds(10)));
}

absl::Status ShowMetrics(int argc, const char* const* argv) {
  ApiFlags api_flags;
  std::string run, names;
  OptionSet options("lathe metrics show", "Prints the newest point of each metric of a run.");
  options.AddPositional(&run, "RUN", "id of the training run");
  options.Add(&names, "metrics.names", "", "names, separated by commas; * stands for any text");
  api_flags.AddTo(options);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(std::string path, MetricsPathOf(run));
  ASSIGN_OR_RETURN(ApiClient api, api_flags.Open());
  const bool is_plain = std::all_of(names.begin(), names.end(), [](char c) {
    return IsRunIdCharacter(c) || c == '/' || c == '*' || c == ',';
  });
  if (!is_plain) {
    return WithDetail(absl::InvalidArgumentError(
                          "names has other characters than A-Z a-z 0-9 _ . / : - * and commas"),
                      "usage");
  }
  ASSIGN_OR_RETURN(const Json answer, api.Get(absl::StrCat(path, "?points=0&names=", names),
                                              SteadyNow() + kMetricsCallTime));
  const auto series = answer.find("series");
  if (series == answer.end() || !series->is_array()) {
    return absl::UnavailableError("the answer has no series: is this a server of this release?");
  }
  std::printf("%-44s %12s %14s %-6s %10s %s\n", "METRIC", "STEP", "VALUE", "UNIT", "POINTS",
              "TIME");
  for (const Json& one : *series) {
    ASSIGN_OR_RETURN(const std::string name, JsonString(one, "name"));
    ASSIGN_OR_RETURN(const int64_t step, JsonInt(one, "last_step"));
    ASSIGN_OR_RETURN(const double value, JsonNumber(one, "last_value"));
    ASSIGN_OR_RETURN(const std::string unit, JsonString(one, "unit"));
    ASSIGN_OR_RETURN(const int64_t count, JsonInt(one, "count"));
    ASSIGN_OR_RETURN(const std::string time, JsonString(one, "last_time"));
    std::printf("%-44s %12s %14.6g %-6s %10s %s\n", name.c_str(), absl::StrCat(step).c_str(), value,
                unit.empty() ? "-" : unit.c_str(), absl::StrCat(count).c_str(), time.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MetricsCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "follow") return FollowLog(argc - 1, argv + 1);
  if (action == "show") return ShowMetrics(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError("lathe metrics needs follow or show"), "usage");
}

}  // namespace lathe::cli
