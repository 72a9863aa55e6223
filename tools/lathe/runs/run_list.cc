#include "tools/lathe/runs/run_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/strings/string_view.h"
#include "tools/lathe/terminal/table.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

constexpr int kMaxNameWidth = 60;
// Blanks between the longest name of a fact and its value.
constexpr int kFactWidth = 18;

std::string ShortTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%MZ", time, absl::UTCTimeZone());
}

std::string CheckpointText(const Json& checkpoint, absl::Time now) {
  if (!checkpoint.is_object()) return "none";
  return absl::StrCat(SafeText(TextMember(checkpoint, "tinker_path")), ", ",
                      AgeText(TextMember(checkpoint, "time"), now));
}

std::string StepText(const ListedRun& run) {
  return run.last_step ? absl::StrCat("seq ", *run.last_step) : "-";
}

}  // namespace

const Json& Member(const Json& object, const std::string& key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string TextMember(const Json& object, const std::string& key) {
  const Json& member = Member(object, key);
  return member.is_string() ? member.get<std::string>() : "";
}

std::string AsciiJsonText(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string SessionOf(std::string_view run_id) {
  return std::string(run_id.substr(0, run_id.find(":train:")));
}

std::string ListedRun::id() const { return TextMember(run, "training_run_id"); }

std::string ListedRun::name() const { return TextMember(session, "display_name"); }

std::string ListedRun::project() const { return TextMember(session, "project_id"); }

std::string ListedRun::state() const {
  const Json& corrupted = Member(run, "corrupted");
  if (corrupted.is_boolean() && corrupted.get<bool>()) return "broken";
  if (!session.is_object()) return "unknown";
  const Json& status = Member(session, "status");
  if (!status.is_object()) return "ended";
  if (TextMember(status, "type") == "active") return "active";
  const std::string reason = TextMember(Member(status, "reason"), "type");
  if (reason == "errored") return "failed";
  return reason == "interrupted" ? reason : "finished";
}

const std::vector<std::string>& RunStates() {
  static const std::vector<std::string> kStates = {"active", "finished", "failed", "interrupted",
                                                   "ended",  "broken",   "unknown"};
  return kStates;
}

bool IsChosen(const ListedRun& run, const std::string& filter, const std::string& state) {
  if (!state.empty() && run.state() != state) return false;
  const std::string text = absl::AsciiStrToLower(absl::StrCat(
      run.id(), "\n", run.name(), "\n", run.project(), "\n", TextMember(run.run, "base_model")));
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(filter), ' ', absl::SkipEmpty());
  return std::all_of(words.begin(), words.end(),
                     [&text](const std::string& word) { return absl::StrContains(text, word); });
}

std::optional<int64_t> LastStep(const Json& requests) {
  const Json& list = Member(requests, "requests");
  if (!list.is_array()) return std::nullopt;
  for (const Json& request : list) {
    if (TextMember(request, "operation") == "optim_step" &&
        TextMember(request, "outcome") == "ok") {
      const absl::StatusOr<int64_t> seq_id = JsonInt(request, "seq_id");
      if (seq_id.ok()) return *seq_id;
    }
  }
  return std::nullopt;
}

std::string AgeText(absl::Time time, absl::Time now) {
  const int64_t seconds = absl::ToInt64Seconds(now - time);
  if (seconds < 5) return "now";
  if (seconds < 120) return absl::StrCat(seconds, " s ago");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min ago");
  if (seconds < 172'800) return absl::StrCat(seconds / 3600, " h ago");
  return absl::StrCat(seconds / 86'400, " d ago");
}

std::string AgeText(const std::string& text, absl::Time now) {
  absl::Time time;
  std::string error;
  return absl::ParseTime(absl::RFC3339_full, text, &time, &error) ? AgeText(time, now) : "-";
}

std::vector<std::string> RunTable(const std::vector<ListedRun>& runs, absl::Time now, int width) {
  const std::vector<TableColumn> columns = {
      {.title = "RUN"},
      {.title = "STATE", .sacrifice = 2},
      {.title = "LAST STEP", .sacrifice = 4},
      {.title = "STARTED", .sacrifice = 5},
      {.title = "LAST HEARD", .sacrifice = 3},
      {.title = "BASE MODEL", .sacrifice = 6, .min_width = 12, .max_width = 40},
      {.title = "NAME", .sacrifice = 1, .min_width = 10, .max_width = kMaxNameWidth},
  };
  std::vector<std::vector<std::string>> rows;
  for (const ListedRun& run : runs) {
    rows.push_back({SafeText(run.id()), run.state(), StepText(run),
                    ShortTime(TextMember(run.session, "created_at")),
                    AgeText(TextMember(run.run, "last_request_time"), now),
                    SafeText(TextMember(run.run, "base_model")), SafeText(run.name())});
  }
  return TableLines(columns, rows, width);
}

std::vector<std::string> RunFacts(const ListedRun& run, absl::Time now) {
  std::vector<std::string> lines;
  const auto add = [&lines](const std::string& name, const std::string& value) {
    lines.push_back(PadText(name, kFactWidth) + value);
  };
  add("run", SafeText(run.id()));
  add("name", SafeText(run.name()));
  add("project", SafeText(run.project()));
  add("state", run.state());
  const std::string detail = TextMember(Member(run.session, "status"), "detail");
  if (!detail.empty()) add("detail", SafeText(detail));
  add("owner", SafeText(TextMember(run.run, "model_owner")));
  add("base model", SafeText(TextMember(run.run, "base_model")));
  const absl::StatusOr<int64_t> lora_rank = JsonInt(run.run, "lora_rank");
  if (lora_rank.ok()) add("LoRA rank", absl::StrCat(*lora_rank));
  add("last step", StepText(run));
  add("started", ShortTime(TextMember(run.session, "created_at")));
  add("last heard", AgeText(TextMember(run.run, "last_request_time"), now));
  add("last checkpoint", CheckpointText(Member(run.run, "last_checkpoint"), now));
  add("last sampler", CheckpointText(Member(run.run, "last_sampler_checkpoint"), now));
  const Json& metadata = Member(run.run, "user_metadata");
  if (metadata.is_object()) {
    for (const auto& [name, value] : metadata.items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : ToJsonText(value);
      add("metadata", absl::StrCat(SafeText(name), " = ", SafeText(text)));
    }
  }
  return lines;
}

}  // namespace lathe::cli
