// The criteria of a session search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

struct SessionQuery {
  // Exact id; empty: any session. With name_words, a session matches if either the id or the name
  // does.
  std::string session_id;
  // Lower-case words that must all occur in the display name; empty: any name.
  std::vector<std::string> name_words;
  // Projects, one of which must be the session's; empty: any project.
  std::vector<std::string> project_ids;
  // Pairs that the session's metadata must all contain.
  Metadata user_metadata;
  // Finish reasons, one of which must be the session's. An active session has "active". Ignored
  // unless `has_statuses`.
  std::vector<std::string> statuses;
  bool has_statuses = false;
  // Start of the page: the results are sessions older than this one. 0: start at the newest.
  int64_t before_created_at = 0;
  std::string before_session_id;
  int64_t limit = 0;
};

// Largest number of sessions that one search looks at. A search among more of them ends early, and
// the next page goes on.
inline constexpr int64_t kMaxSearchedSessions = 4096;

struct SessionPage {
  std::vector<SessionRow> rows;
  // Start of the next page, as in SessionQuery. 0: this is the last page.
  int64_t next_created_at = 0;
  std::string next_session_id;
};

// Returns true if `row` satisfies the criteria. Ignores the start of the page and `limit`.
bool Matches(const SessionRow& row, const SessionQuery& query);

}  // namespace lathe::engine
