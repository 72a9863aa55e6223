#include "services/engine/store/session_query.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lathe::engine {
namespace {

bool Contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool MatchesIdOrName(const SessionRow& row, const SessionQuery& query) {
  if (query.session_id.empty() && query.name_words.empty()) return true;
  if (!query.session_id.empty() && row.session_id == query.session_id) return true;
  const std::string name = absl::AsciiStrToLower(row.display_name);
  return !query.name_words.empty() &&
         std::all_of(query.name_words.begin(), query.name_words.end(),
                     [&](const std::string& word) { return absl::StrContains(name, word); });
}

}  // namespace

bool Matches(const SessionRow& row, const SessionQuery& query) {
  const std::string status =
      row.state == SessionState::kActive ? std::string("active") : row.finish_reason;
  return MatchesIdOrName(row, query) &&
         (query.project_ids.empty() || Contains(query.project_ids, row.project_id)) &&
         (!query.has_statuses || Contains(query.statuses, status)) &&
         std::all_of(query.user_metadata.begin(), query.user_metadata.end(), [&](const auto& pair) {
           return std::find(row.user_metadata.begin(), row.user_metadata.end(), pair) !=
                  row.user_metadata.end();
         });
}

}  // namespace lathe::engine
