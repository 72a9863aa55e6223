// Training runs of a key's tenant as a table: what `lathe runs` prints.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/json/json.h"

namespace lathe::cli {

struct ListedRun {
  // TrainingRun of the API.
  Json run;
  // SessionSummary of its session; null: not found.
  Json session;
  // seq_id of the newest optim_step that succeeded, as far as the engine remembers its requests.
  std::optional<int64_t> last_step;

  std::string id() const;
  // Display name of its session; empty: none.
  std::string name() const;
  std::string project() const;
  // One of active, finished, failed, interrupted, ended, broken, unknown, as the dashboard says it.
  std::string state() const;
};

// States that a run may have.
const std::vector<std::string>& RunStates();

// Returns the session of a run. A run's id is {session_id}:train:{number}.
std::string SessionOf(std::string_view run_id);

// Returns the member `key` of `object`, or null if there is none.
const Json& Member(const Json& object, const std::string& key);
// Returns the member's text, or "" if it is no text.
std::string TextMember(const Json& object, const std::string& key);

// Writes `value` on one line in ASCII, so that no text in it can do anything to a terminal.
std::string AsciiJsonText(const Json& value);

// Returns true if the run has the state (empty: any) and, in its id, name, project or base model,
// each word of `filter`, whatever their case.
bool IsChosen(const ListedRun& run, const std::string& filter, const std::string& state);

// Returns seq_id of the newest optim_step that succeeded in an answer of ListRunRequests.
std::optional<int64_t> LastStep(const Json& requests);

// Returns "3 min ago" or, for a time to come, "now".
std::string AgeText(absl::Time time, absl::Time now);
// The same for a time of the API; "-" if it is none.
std::string AgeText(const std::string& time, absl::Time now);

// Returns lines of at most `width` columns (0: no limit). Names come last, so that letters of a
// language that is written from right to left move no other column.
std::vector<std::string> RunTable(const std::vector<ListedRun>& runs, absl::Time now, int width);

// Returns a line "NAME  VALUE" for each fact of one run.
std::vector<std::string> RunFacts(const ListedRun& run, absl::Time now);

}  // namespace lathe::cli
