#include "tools/lathe/top/top_frame.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/lathe/terminal/table.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

// Rows of a section in a frame without a limit, at most.
constexpr std::size_t kMaxSectionRows = 200;
constexpr int kBarWidth = 10;
// A section keeps its title, a row, and how many rows are missing, for as long as it is shown.
constexpr std::size_t kMinSectionLines = 3;

struct TopRow {
  std::vector<std::string> cells;
  Mood mood = Mood::kPlain;
};

struct TopSection {
  std::vector<ScreenLine> lines;
  // Rows that were not even made.
  std::size_t num_left_out = 0;
};

std::string ClockText(absl::Time time) {
  return absl::FormatTime("%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string RateText(double a_second) {
  return absl::StrFormat(a_second < 100 ? "%.1f" : "%.0f", a_second);
}

double GibOf(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::string MemoryBar(int64_t used, int64_t limit) {
  const double share = limit > 0 ? static_cast<double>(used) / static_cast<double>(limit) : 0;
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kBarWidth));
  return absl::StrCat("[", std::string(static_cast<std::size_t>(full), '#'),
                      std::string(static_cast<std::size_t>(kBarWidth - full), '-'), "]");
}

Mood MoodOfState(const std::string& state) {
  if (state == "ready") return Mood::kGood;
  if (state == "lost" || state == "degraded" || state == "refused") return Mood::kBad;
  return Mood::kWarning;
}

std::string CountOrNone(int64_t count) { return count == 0 ? "" : absl::StrCat(count); }

// True if one of the texts has the filter in it.
bool HasFilter(const std::string& filter, const std::vector<std::string>& texts) {
  if (filter.empty()) return true;
  const std::string wanted = absl::AsciiStrToLower(filter);
  return std::any_of(texts.begin(), texts.end(), [&wanted](const std::string& text) {
    return absl::StrContains(absl::AsciiStrToLower(text), wanted);
  });
}

class FrameMaker {
 public:
  FrameMaker(const TopState& state, const TopView& view)
      : state_(state),
        view_(view),
        max_rows_(view.size.rows > 0 ? static_cast<std::size_t>(view.size.rows) : kMaxSectionRows) {
  }

  std::vector<ScreenLine> Make() const {
    std::vector<ScreenLine> lines = {Header()};
    if (view_.is_help) {
      AddHelp(lines);
    } else {
      AddSections(lines);
    }
    if (view_.size.rows > 0) {
      const auto num_rows = static_cast<std::size_t>(view_.size.rows);
      if (view_.has_keys && num_rows > 1) {
        lines.resize(num_rows - 1);
        lines.push_back(Footer());
      }
      if (lines.size() > num_rows) lines.resize(num_rows);
    }
    if (view_.size.columns > 0) {
      for (ScreenLine& line : lines) line.text = CutText(line.text, view_.size.columns);
    }
    return lines;
  }

 private:
  ScreenLine Header() const {
    if (state_.away_since()) {
      return {absl::StrCat("lathe top  no answer since ", ClockText(*state_.away_since()),
                           "; the picture is of ", ClockText(state_.time())),
              Mood::kBad};
    }
    const v1::GetStatusResponse& status = state_.status();
    std::string text = absl::StrCat("lathe top  ", ClockText(state_.time()));
    if (!status.version().empty()) {
      absl::StrAppend(&text, "  engine ", SafeText(status.version()), ", term ", status.term());
    }
    absl::StrAppend(&text, "  ", status.pending_requests(), " requests wait or run");
    return {text, Mood::kTitle};
  }

  ScreenLine Footer() const {
    if (view_.is_typing) return {absl::StrCat("/", SafeText(view_.filter), "_"), Mood::kTitle};
    constexpr const char* kOrders[] = {"waiting", "seq", "name"};
    std::string text = view_.is_paused ? "PAUSED  " : "";
    absl::StrAppend(&text, "q quit  ? help  s sort:", kOrders[static_cast<int>(view_.order)],
                    "  p pause  / filter");
    if (!view_.filter.empty()) absl::StrAppend(&text, ":", SafeText(view_.filter));
    return {text, Mood::kMuted};
  }

  void AddHelp(std::vector<ScreenLine>& lines) const {
    for (const char* const text :
         {"q      quit", "s      sort runs and tenants by waiting, seq, name",
          "/      filter groups, tenants, runs; Enter", "Esc    clears the filter",
          "p      pause, go on", "?      this help", "",
          "WAITING counts requests that wait or run.", "TOK/S: sampled tokens a second.",
          "PASS/S: training passes a second."}) {
      lines.push_back({text});
    }
  }

  // Makes lines of the columns that have anything in them.
  TopSection SectionOf(std::vector<TableColumn> columns, std::vector<TopRow> rows,
                       std::size_t num_left_out = 0) const {
    std::vector<std::vector<std::string>> cells;
    for (TopRow& row : rows) cells.push_back(std::move(row.cells));
    for (std::size_t column = columns.size(); column-- > 0;) {
      const bool is_used = std::any_of(cells.begin(), cells.end(),
                                       [column](const auto& row) { return !row[column].empty(); });
      if (is_used) continue;
      columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(column));
      for (auto& row : cells) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    }
    TopSection section = {.num_left_out = num_left_out};
    const std::vector<std::string> lines = TableLines(columns, cells, view_.size.columns);
    for (std::size_t index = 0; index < lines.size(); ++index) {
      section.lines.push_back({lines[index], index == 0 ? Mood::kTitle : rows[index - 1].mood});
    }
    return section;
  }

  std::vector<const v1::GroupStatus*> Groups() const {
    std::vector<const v1::GroupStatus*> groups;
    for (const v1::GroupStatus& group : state_.status().groups()) {
      if (HasFilter(view_.filter, {group.group(), group.base_model(), group.state()})) {
        groups.push_back(&group);
      }
    }
    return groups;
  }

  TopSection GroupSection() const {
    std::vector<TopRow> rows;
    for (const v1::GroupStatus* const group : Groups()) {
      if (rows.size() == max_rows_) break;
      const std::optional<GroupRate> rate = state_.RateOf(group->group());
      std::string why = group->drain();
      for (const std::string& more : {group->drain_left(), group->reason(), group->progress()}) {
        if (!more.empty()) absl::StrAppend(&why, why.empty() ? "" : ", ", more);
      }
      rows.push_back(
          {{SafeText(group->group()), SafeText(group->state()), CountOrNone(group->models()),
            rate ? RateText(rate->generated_tokens) : "", rate ? RateText(rate->train_passes) : "",
            SafeText(group->base_model()), SafeText(why)},
           MoodOfState(group->state())});
    }
    if (rows.empty()) return {{{"GROUP", Mood::kTitle}, {"none", Mood::kMuted}}};
    const std::size_t num_rows = rows.size();
    return SectionOf({{.title = "GROUP", .min_width = 10, .max_width = 40},
                      {.title = "STATE"},
                      {.title = "RUNS", .is_number = true, .sacrifice = 3},
                      {.title = "TOK/S", .is_number = true, .sacrifice = 4},
                      {.title = "PASS/S", .is_number = true, .sacrifice = 5},
                      {.title = "BASE MODEL", .sacrifice = 2, .min_width = 10, .max_width = 40},
                      {.title = "WHY", .sacrifice = 1, .min_width = 12}},
                     std::move(rows), Groups().size() - num_rows);
  }

  TopSection RankSection() const {
    std::vector<TopRow> rows;
    std::size_t num_ranks = 0;
    for (const v1::GroupStatus* const group : Groups()) {
      for (const v1::RankStatus& rank : group->ranks()) {
        if (++num_ranks > max_rows_) continue;
        const v1::MemoryUse& memory = rank.memory();
        const bool has_memory = rank.has_memory();
        rows.push_back(
            {{absl::StrCat(SafeText(group->group()), "/", rank.rank()),
              has_memory ? MemoryBar(memory.used_bytes(), memory.limit_bytes()) : "",
              has_memory ? absl::StrFormat("%.2f of %.2f GiB", GibOf(memory.used_bytes()),
                                           GibOf(memory.limit_bytes()))
                         : "",
              SafeText(rank.device()), absl::StrCat(rank.pid())}});
      }
    }
    if (rows.empty()) return {};
    const std::size_t num_rows = rows.size();
    return SectionOf({{.title = "RANK", .min_width = 10},
                      {.title = "MEMORY", .sacrifice = 2},
                      {.title = "USED", .sacrifice = 1},
                      {.title = "DEVICE", .sacrifice = 3},
                      {.title = "PID", .is_number = true, .sacrifice = 4}},
                     std::move(rows), num_ranks - num_rows);
  }

  // Returns whether `a` comes before `b`, each as its count, its seq and its name.
  bool IsBefore(const std::tuple<int64_t, int64_t, std::string>& a,
                const std::tuple<int64_t, int64_t, std::string>& b) const {
    const auto& [waiting_a, seq_a, name_a] = a;
    const auto& [waiting_b, seq_b, name_b] = b;
    if (view_.order == TopOrder::kWaiting && waiting_a != waiting_b) return waiting_a > waiting_b;
    if (view_.order == TopOrder::kSeq && seq_a != seq_b) return seq_a > seq_b;
    return name_a < name_b;
  }

  TopSection TenantSection() const {
    struct Use {
      int64_t waiting = 0;
      int64_t seq = 0;
      int64_t runs = 0;
    };
    std::map<std::string, Use> tenants;
    for (const v1::ModelStatus& run : state_.status().models()) {
      Use& use = tenants[run.tenant()];
      use.waiting += run.pending_requests();
      use.seq += run.applied_seq();
      ++use.runs;
    }
    std::vector<std::pair<std::string, Use>> sorted;
    for (const auto& [name, use] : tenants) {
      if (HasFilter(view_.filter, {name})) sorted.emplace_back(name, use);
    }
    if (sorted.empty()) return {};
    std::sort(sorted.begin(), sorted.end(), [this](const auto& a, const auto& b) {
      return IsBefore({a.second.waiting, a.second.seq, a.first},
                      {b.second.waiting, b.second.seq, b.first});
    });
    std::vector<TopRow> rows;
    for (const auto& [name, use] : sorted) {
      if (rows.size() == max_rows_) break;
      rows.push_back({{absl::StrCat(use.waiting), absl::StrCat(use.runs), SafeText(name)}});
    }
    const std::size_t num_rows = rows.size();
    return SectionOf({{.title = "WAITING", .is_number = true},
                      {.title = "RUNS", .is_number = true},
                      {.title = "TENANT"}},
                     std::move(rows), sorted.size() - num_rows);
  }

  TopSection RunSection() const {
    std::vector<const v1::ModelStatus*> runs;
    for (const v1::ModelStatus& run : state_.status().models()) {
      if (HasFilter(view_.filter,
                    {run.model_id(), run.tenant(), run.state(), run.group(), run.reason()})) {
        runs.push_back(&run);
      }
    }
    if (runs.empty()) return {{{"RUN", Mood::kTitle}, {"none", Mood::kMuted}}};
    std::sort(runs.begin(), runs.end(), [this](const auto* a, const auto* b) {
      return IsBefore({a->pending_requests(), a->applied_seq(), a->model_id()},
                      {b->pending_requests(), b->applied_seq(), b->model_id()});
    });
    std::vector<TopRow> rows;
    for (const v1::ModelStatus* const run : runs) {
      if (rows.size() == max_rows_) break;
      const std::string going =
          run->move_to().empty() ? "" : absl::StrCat("moves to ", run->move_to());
      const char* const separator = going.empty() || run->reason().empty() ? "" : "; ";
      rows.push_back(
          {{SafeText(run->model_id()), absl::StrCat(run->pending_requests()),
            SafeText(run->state()), absl::StrCat(run->applied_seq()), SafeText(run->group()),
            SafeText(run->tenant()), SafeText(absl::StrCat(going, separator, run->reason()))},
           run->reason().empty() ? Mood::kPlain : Mood::kWarning});
    }
    const std::size_t num_rows = rows.size();
    return SectionOf({{.title = "RUN", .min_width = 14},
                      {.title = "WAITING", .is_number = true, .sacrifice = 1},
                      {.title = "STATE", .sacrifice = 4},
                      {.title = "SEQ", .is_number = true, .sacrifice = 3},
                      {.title = "GROUP", .sacrifice = 5, .max_width = 20},
                      {.title = "TENANT", .sacrifice = 6, .max_width = 20},
                      {.title = "WAITS FOR", .sacrifice = 2, .min_width = 14}},
                     std::move(rows), runs.size() - num_rows);
  }

  // The newest event comes first.
  TopSection EventSection() const {
    const std::deque<TopEvent>& events = state_.events();
    if (events.empty()) return {};
    TopSection section = {{{"EVENTS", Mood::kTitle}}};
    for (auto event = events.rbegin(); event != events.rend(); ++event) {
      section.lines.push_back({absl::StrCat(ClockText(event->time), " ", SafeText(event->text))});
    }
    return section;
  }

  void AddSections(std::vector<ScreenLine>& lines) const {
    std::vector<TopSection> sections;
    // The last ones go first when there is no room at all.
    for (TopSection section :
         {GroupSection(), RunSection(), EventSection(), TenantSection(), RankSection()}) {
      sections.push_back(std::move(section));
    }
    if (view_.size.rows > 0) {
      const std::size_t num_used = lines.size() + (view_.has_keys ? 1 : 0);
      const auto num_rows = static_cast<std::size_t>(view_.size.rows);
      Shrink(sections, num_rows > num_used ? num_rows - num_used : 0);
    }
    constexpr std::size_t kOrderOnScreen[] = {0, 4, 3, 1, 2};
    for (const std::size_t index : kOrderOnScreen) {
      const TopSection& section = sections[index];
      lines.insert(lines.end(), section.lines.begin(), section.lines.end());
      if (section.num_left_out > 0) lines.push_back(MoreLine(section.num_left_out));
    }
  }

  static ScreenLine MoreLine(std::size_t count) {
    return {absl::StrCat("  ", count, " more"), Mood::kMuted};
  }

  static std::size_t NumLines(const TopSection& section) {
    return section.lines.size() + (section.num_left_out > 0 ? 1 : 0);
  }

  // Takes a row away. The first time two rows go, for the line that says how many are missing.
  static void DropRow(TopSection& section) {
    const std::size_t num_rows = section.num_left_out == 0 ? 2 : 1;
    section.lines.resize(section.lines.size() - num_rows);
    section.num_left_out += num_rows;
  }

  // Takes rows from the longest section until all fit. Then leaves sections out, the last first.
  static void Shrink(std::vector<TopSection>& sections, std::size_t num_lines) {
    const auto total = [&sections] {
      std::size_t sum = 0;
      for (const TopSection& section : sections) sum += NumLines(section);
      return sum;
    };
    while (total() > num_lines) {
      const auto longest = std::max_element(
          sections.begin(), sections.end(),
          [](const TopSection& a, const TopSection& b) { return NumLines(a) < NumLines(b); });
      if (NumLines(*longest) <= kMinSectionLines) break;
      DropRow(*longest);
    }
    for (auto section = sections.rbegin(); section != sections.rend() && total() > num_lines;
         ++section) {
      *section = {};
    }
  }

  const TopState& state_;
  const TopView& view_;
  const std::size_t max_rows_;
};

}  // namespace

TopOrder NextOrder(TopOrder order) {
  return order == TopOrder::kWaiting ? TopOrder::kSeq
         : order == TopOrder::kSeq   ? TopOrder::kName
                                     : TopOrder::kWaiting;
}

std::vector<ScreenLine> TopFrame(const TopState& state, const TopView& view) {
  return FrameMaker(state, view).Make();
}

}  // namespace lathe::cli
