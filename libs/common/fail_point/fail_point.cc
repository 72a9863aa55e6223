#include "libs/common/fail_point/fail_point.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/fail_point/fail_point_list.h"
#include "libs/common/fail_point/fail_rule.h"
#include "libs/common/fail_point/pass_counts.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Ends, stops or delays the process as the rule says. Returns the rule's errno.
int Act(const FailRule& rule) {
  switch (rule.action) {
    case FailRule::Action::kKill:
      kill(getpid(), SIGKILL);
      break;
    case FailRule::Action::kStop:
      raise(
          SIGSTOP);  // to the process, another thread might take it, and this one go on for a while
      break;
    case FailRule::Action::kAbort:
      std::abort();
    case FailRule::Action::kSegv: {
      signal(SIGSEGV, SIG_DFL);
      // Threads of the service block all signals. A raised signal, unlike a fault, would then stay
      // pending.
      sigset_t segv;
      sigemptyset(&segv);
      sigaddset(&segv, SIGSEGV);
      pthread_sigmask(SIG_UNBLOCK, &segv, nullptr);
      raise(SIGSEGV);
      break;
    }
    case FailRule::Action::kSleep:
      std::this_thread::sleep_for(rule.sleep);
      break;
    case FailRule::Action::kSkip:
      return kFailPointSkip;
    case FailRule::Action::kError:
      break;
  }
  return rule.error_number;
}

// Reads the file again at every pass, so that the next request of a test meets its new rules.
class RulesFile {
 public:
  explicit RulesFile(std::string path) : path_(std::move(path)) {}

  // Returns the file's contents if they changed since the last call. A missing file counts as
  // empty.
  std::optional<std::string> ReadIfChanged() {
    if (path_.empty()) return std::nullopt;
    struct stat info {};
    const bool exists = stat(path_.c_str(), &info) == 0;
    const Version version =
        exists ? Version{info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec}
               : Version{};
    if (version == version_) return std::nullopt;
    version_ = version;
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  using Version = std::tuple<ino_t, off_t, time_t, int64_t>;

  std::string path_;
  Version version_;
};

class Registry {
 public:
  absl::Status Arm(std::string_view process) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(given_, Rules(Environment("LATHE_FAIL_POINTS")));
    const std::string path = Environment("LATHE_FAIL_POINTS_FILE");
    file_ = RulesFile(path);
    ASSIGN_OR_RETURN(from_file_, Rules(file_.ReadIfChanged().value_or("")));
    int64_t seed = 0;
    const std::string seed_text = Environment("LATHE_FAIL_SEED");
    if (!seed_text.empty() && !absl::SimpleAtoi(seed_text, &seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("LATHE_FAIL_SEED is '", seed_text, "', expected an integer"));
    }
    // Two runs of a process do not fail in the same way.
    std::seed_seq seeds{seed, static_cast<int64_t>(getpid())};
    random_.seed(seeds);
    const std::string counts_dir = Environment("LATHE_FAIL_POINT_COUNTS");
    if (!counts_dir.empty()) {
      const std::string name = absl::StrCat(std::string(process), ".", getpid());
      RETURN_IF_ERROR(counts_.Open(std::filesystem::path(counts_dir) / name));
    }
    Switch(!given_.empty() || !path.empty() || !counts_dir.empty());
    return absl::OkStatus();
  }

  absl::Status SetForTest(std::string_view text) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(given_, Rules(text));
    Switch(!given_.empty());
    return absl::OkStatus();
  }

  // Returns the rule that fires at this pass, if there is one.
  std::optional<FailRule> Find(std::string_view name, int64_t value) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ReadFile();
    const auto list = FailPointList();
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const FailPointInfo& info) { return info.name == name; });
    if (found == list.end()) {
      LogError("a fail point is not listed", {{"name", name}});
      std::abort();
    }
    const size_t point = found - list.begin();
    counts_.AddPass(point);
    std::optional<FailRule> fires;
    for (std::vector<CountedRule>* rules : {&given_, &from_file_}) {
      for (CountedRule& counted : *rules) {
        if (counted.rule.point != point || counted.rule.value.value_or(value) != value) continue;
        if (Fires(counted) && !fires) fires = counted.rule;
      }
    }
    if (fires) counts_.AddFire(point);
    return fires;
  }

 private:
  struct CountedRule {
    FailRule rule;
    int64_t passed = 0;
  };

  static absl::StatusOr<std::vector<CountedRule>> Rules(std::string_view text) {
    ASSIGN_OR_RETURN(const std::vector<FailRule> parsed, ParseFailRules(text));
    std::vector<CountedRule> rules;
    for (const FailRule& rule : parsed) {
      if (rule.pid == 0 || rule.pid == getpid()) rules.push_back({.rule = rule});
    }
    return rules;
  }

  void Switch(bool on) {
    fail_point_internal::armed = on;
    if (on) LogWarn("fail points are armed: this process fails on purpose");
  }

  void ReadFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::optional<std::string> text = file_.ReadIfChanged();
    if (!text) return;
    absl::StatusOr<std::vector<CountedRule>> rules = Rules(*text);
    if (!rules.ok()) LogError("fail points are refused", {{"error", rules.status().message()}});
    from_file_ = rules.ok() ? *std::move(rules) : std::vector<CountedRule>();
  }

  bool Fires(CountedRule& counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const FailRule& rule = counted.rule;
    ++counted.passed;
    if (counted.passed < rule.first || counted.passed > rule.last) return false;
    return rule.probability >= 1 || std::uniform_real_distribution<>()(random_) < rule.probability;
  }

  absl::Mutex mu_;
  std::vector<CountedRule> given_ ABSL_GUARDED_BY(mu_);
  std::vector<CountedRule> from_file_ ABSL_GUARDED_BY(mu_);
  RulesFile file_ ABSL_GUARDED_BY(mu_){""};
  PassCounts counts_ ABSL_GUARDED_BY(mu_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
};

// Never destroyed, because threads may pass points while the process exits.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

namespace fail_point_internal {

std::atomic<bool> armed = false;

int Pass(std::string_view name, int64_t value) {
  const std::optional<FailRule> rule = TheRegistry().Find(name, value);
  if (!rule) return 0;
  LogWarn("fail point", {{"name", name}});
  return Act(*rule);
}

}  // namespace fail_point_internal

absl::Status ArmFailPoints(std::string_view process) { return TheRegistry().Arm(process); }

absl::Status SetFailPointsForTest(std::string_view rules) {
  return TheRegistry().SetForTest(rules);
}

}  // namespace lathe
