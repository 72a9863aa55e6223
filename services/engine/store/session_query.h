// What a search of sessions asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

struct SessionQuery {
  // Empty: any. With name_words: either suffices.
  std::string session_id;
  // Lower case, each somewhere in the display name; empty: any name.
  std::vector<std::string> name_words;
  // Any of them; empty: any.
  std::vector<std::string> project_ids;
  // Each pair must be there.
  Metadata user_metadata;
  // Finish reasons of which one must be the session's; an active session has "active". Unused
  // unless `has_statuses`.
  std::vector<std::string> statuses;
  bool has_statuses = false;
  // Only sessions older than this one; 0: all.
  int64_t before_created_at = 0;
  std::string before_session_id;
  int64_t limit = 0;
};

// Whether `row` is what the query wants, its place in the order aside.
bool Matches(const SessionRow& row, const SessionQuery& query);

}  // namespace lathe::engine
