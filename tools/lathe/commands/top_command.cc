#include "tools/lathe/commands/top_command.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/api_options.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/signals.h"
#include "tools/lathe/terminal/text.h"
#include "tools/lathe/top/top_frame.h"
#include "tools/lathe/top/top_keys.h"
#include "tools/lathe/top/top_source.h"
#include "tools/lathe/top/top_state.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kKeyWait = absl::Milliseconds(100);
// How often the thread looks whether it is time to read.
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kMaxPeriod = absl::Minutes(10);
// The server spends at most about this part of the time on answers.
constexpr int kReadShare = 5;

// Reads again and again on a thread of its own, so that keys work while the server hangs.
class TopPoller {
 public:
  TopPoller(TopSource& source, absl::Duration period, v1::GetStatusResponse first)
      : source_(source), period_(period), next_read_(SteadyNow() + period) {
    state_.Add(std::move(first), absl::Now(), SteadyNow());
    thread_ = std::make_unique<PeriodicTask>("top-poll", kTick, [this] { ReadIfDue(); });
  }
  // Stops a call that is running.
  ~TopPoller() { is_stopped_ = true; }

  void Pause(bool is_paused) {
    const absl::MutexLock lock(&mu_);
    is_paused_ = is_paused;
  }
  // Grows with each answer and each failure.
  int64_t version() const {
    const absl::MutexLock lock(&mu_);
    return version_;
  }
  std::vector<ScreenLine> Frame(const TopView& view) const {
    const absl::MutexLock lock(&mu_);
    return TopFrame(state_, view);
  }

 private:
  bool IsDue() const {
    const absl::MutexLock lock(&mu_);
    return !is_paused_ && SteadyNow() >= next_read_;
  }

  void ReadIfDue() {
    if (!IsDue()) return;
    const absl::Time begin = SteadyNow();
    absl::StatusOr<v1::GetStatusResponse> status =
        source_.Read([this] { return is_stopped_.load(); });
    const absl::Time end = SteadyNow();
    const absl::Duration pause = std::max(period_, (end - begin) * (kReadShare - 1));
    const absl::MutexLock lock(&mu_);
    ++version_;
    if (status.ok()) {
      state_.Add(*std::move(status), absl::Now(), end);
      next_read_ = end + pause;
    } else {
      state_.AddFailure(status.status(), absl::Now());
      next_read_ = end + std::max(pause, RetryAfter(status.status()));
    }
  }

  TopSource& source_;
  std::atomic<bool> is_stopped_ = false;
  const absl::Duration period_;
  mutable absl::Mutex mu_;
  TopState state_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_paused_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time next_read_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<PeriodicTask> thread_;
};

void PrintFrame(const std::vector<ScreenLine>& frame) {
  for (const ScreenLine& line : frame) std::printf("%s\n", line.text.c_str());
  std::fflush(stdout);
}

bool operator!=(const TerminalSize& a, const TerminalSize& b) {
  return a.rows != b.rows || a.columns != b.columns;
}

// Shows frames until a key or a signal ends it.
void RunOnScreen(TopPoller& poller, Screen& screen, Signals& signals) {
  TopView view = {.has_keys = true};
  int64_t shown_version = -1;
  while (signals.Wait(absl::ZeroDuration()) != SignalEvent::kStop) {
    const int64_t version = poller.version();
    if (version != shown_version || screen.size() != view.size) {
      shown_version = version;
      view.size = screen.size();
      screen.Show(poller.Frame(view));
    }
    const KeyPress press = screen.Read(kKeyWait);
    if (press.key == Key::kNone) continue;
    if (!ApplyKey(press, view)) return;
    poller.Pause(view.is_paused);
    shown_version = -1;
  }
}

// Prints frame after frame, for a terminal that cannot move its cursor.
void RunAsText(TopPoller& poller, Signals& signals) {
  int64_t shown_version = -1;
  while (std::ferror(stdout) == 0) {
    const int64_t version = poller.version();
    if (version != shown_version) {
      if (shown_version >= 0) std::printf("\n");
      PrintFrame(poller.Frame({.size = {.columns = SizeOf(STDOUT_FILENO).columns}}));
    }
    shown_version = version;
    if (signals.Wait(kKeyWait) == SignalEvent::kStop) return;
  }
}

struct TopOptions {
  ApiOptions api;
  absl::Duration period;
  bool is_once = false;
};

absl::StatusOr<std::unique_ptr<TopSource>> SourceOf(const TopOptions& options) {
  if (options.api.url.empty()) {
    return std::make_unique<AdminTopSource>(OpenDataDir(options.api.data));
  }
  ASSIGN_OR_RETURN(ApiClient api, OpenApi(options.api));
  return std::make_unique<ApiTopSource>(std::move(api));
}

absl::Status PrintOnce(const TopOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TopSource> source, SourceOf(options));
  ASSIGN_OR_RETURN(v1::GetStatusResponse status, source->Read(nullptr));
  TopState state;
  state.Add(std::move(status), absl::Now(), SteadyNow());
  PrintFrame(TopFrame(state, {.size = {.columns = SizeOf(STDOUT_FILENO).columns}}));
  return absl::OkStatus();
}

absl::Status RunTop(const TopOptions& options) {
  UseLocale();
  // A server that closes a connection must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  const bool is_live = !options.is_once && isatty(STDOUT_FILENO) != 0;
  if (!is_live) return PrintOnce(options);
  std::optional<Signals> signals(std::in_place);
  ASSIGN_OR_RETURN(const std::unique_ptr<TopSource> source, SourceOf(options));
  ASSIGN_OR_RETURN(v1::GetStatusResponse first, source->Read([&signals] {
    return signals->Wait(absl::ZeroDuration()) == SignalEvent::kStop;
  }));
  TopPoller poller(*source, std::max(options.period, source->period()), std::move(first));
  {
    const std::unique_ptr<Screen> screen = Screen::Open(MayUseColor());
    screen == nullptr ? RunAsText(poller, *signals) : RunOnScreen(poller, *screen, *signals);
  }
  // The end of the poller may wait for a name server. From here on Ctrl-C ends the process at once.
  signals.reset();
  return absl::OkStatus();
}

}  // namespace

absl::Status TopCommand(int argc, const char* const* argv) {
  TopOptions options;
  OptionSet set("lathe top",
                "Shows groups, ranks, tenants and runs, live, until q or Ctrl-C; ? lists the keys. "
                "On the machine of the\nengine it uses the admin socket. With --url it asks the "
                "API, and shows what the key may see.");
  AddApiOptions(set, options.api);
  set.Add(&options.is_once, "top.once", false, "print one frame as text");
  set.Add(&options.period, "top.period", absl::ZeroDuration(),
          "pause between two reads; 0, and at least: 1s, over the API 5s");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  if (options.period < absl::ZeroDuration() || options.period > kMaxPeriod) {
    return UsageError(absl::StrCat("period is ", absl::FormatDuration(options.period),
                                   ", expected 0 to ", absl::FormatDuration(kMaxPeriod)));
  }
  return RunTop(options);
}

}  // namespace lathe::cli
