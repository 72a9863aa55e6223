#include "libs/common/fail_point/fail_rule.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/common/fail_point/fail_point_list.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe {
namespace {

using Action = FailRule::Action;

absl::Status Wrong(absl::string_view rule, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrFormat("fail point rule '%s': %s", rule, why));
}

std::optional<size_t> FindPoint(absl::string_view name) {
  const auto list = FailPointList();
  for (size_t index = 0; index < list.size(); ++index) {
    if (AbslView(list[index].name) == name) return index;
  }
  return std::nullopt;
}

// Cuts `text` at the first `mark` and returns the rest; nullopt when there is no mark.
std::optional<absl::string_view> CutAfter(absl::string_view& text, char mark) {
  const size_t at = text.find(mark);
  if (at == absl::string_view::npos) return std::nullopt;
  const absl::string_view rest = text.substr(at + 1);
  text = text.substr(0, at);
  return rest;
}

bool SetPasses(absl::string_view passes, FailRule& rule) {
  const bool goes_on = absl::ConsumeSuffix(&passes, "+");
  if (!absl::SimpleAtoi(passes, &rule.first) || rule.first < 1) return false;
  if (!goes_on) rule.last = rule.first;
  return true;
}

bool SetAction(absl::string_view word, FailRule& rule) {
  static constexpr std::pair<absl::string_view, Action> kPlain[] = {{"kill", Action::kKill},
                                                                    {"stop", Action::kStop},
                                                                    {"abort", Action::kAbort},
                                                                    {"segv", Action::kSegv},
                                                                    {"skip", Action::kSkip}};
  for (const auto& [name, action] : kPlain) {
    if (word != name) continue;
    rule.action = action;
    return true;
  }
  int number = EIO;
  if (absl::ConsumePrefix(&word, "sleep:")) {
    rule.action = Action::kSleep;
    if (!absl::SimpleAtoi(word, &number) || number < 0) return false;
    rule.sleep = std::chrono::milliseconds(number);
    return true;
  }
  if (!absl::ConsumePrefix(&word, "error")) return false;
  rule.action = Action::kError;
  if (absl::ConsumePrefix(&word, ":") && !absl::SimpleAtoi(word, &number)) return false;
  rule.error_number = number;
  return word.empty() || number > 0;
}

absl::StatusOr<FailRule> ParseRule(absl::string_view text) {
  FailRule rule;
  absl::string_view name = text;
  const auto right = CutAfter(name, '=');
  if (!right) return Wrong(text, "expected NAME=ACTION");
  const std::optional<size_t> point = FindPoint(name);
  if (!point) return Wrong(text, "no such fail point");
  rule.point = *point;
  absl::string_view action = *right;
  if (const auto pid = CutAfter(action, '#'); pid && !absl::SimpleAtoi(*pid, &rule.pid)) {
    return Wrong(text, "expected a process id after #");
  }
  if (const auto share = CutAfter(action, '%');
      share && (!absl::SimpleAtod(*share, &rule.probability) || !(rule.probability > 0) ||
                rule.probability > 1)) {
    return Wrong(text, "expected a probability in (0, 1] after %");
  }
  if (const auto passes = CutAfter(action, '@'); passes && !SetPasses(*passes, rule)) {
    return Wrong(text, "expected N or N+ after @, N at least 1");
  }
  if (const auto value = CutAfter(action, '?');
      value && !absl::SimpleAtoi(*value, &rule.value.emplace())) {
    return Wrong(text, "expected an integer after ?");
  }
  if (!SetAction(action, rule)) {
    return Wrong(text, "expected kill, stop, abort, segv, skip, sleep:MS or error[:ERRNO]");
  }
  if (rule.action == Action::kError && !FailPointList()[rule.point].can_error) {
    return Wrong(text, "this fail point cannot return an error");
  }
  if (rule.action == Action::kSkip && !FailPointList()[rule.point].can_skip) {
    return Wrong(text, "this fail point cannot skip anything");
  }
  return rule;
}

}  // namespace

absl::StatusOr<std::vector<FailRule>> ParseFailRules(std::string_view text) {
  std::vector<FailRule> rules;
  for (const absl::string_view one :
       absl::StrSplit(AbslView(text), absl::ByAnyChar(", \n\t"), absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(rules.emplace_back(), ParseRule(one));
  }
  return rules;
}

}  // namespace lathe
