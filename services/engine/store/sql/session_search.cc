#include "services/engine/store/sql/session_search.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/engine/store/sql/row_codec.h"

namespace lathe::engine {
namespace {

// Longest pattern that SQL matches. A longer one is left to Matches.
constexpr size_t kMaxPatternBytes = 4096;
// Texts that Postgres cannot store begin with this byte and are encoded (see text_codec.h). SQL
// lets them pass, and Matches decides.
constexpr char kEncoded[] = "\x01%";

// Statements that read the sessions in the order of one index.
struct Scan {
  std::string find_end;  // finds the last session that a search may look at
  std::string read;
};

// `condition` limits the scan to the sessions of one index. ?1 is the tenant and ?2 the project.
Scan MakeScan(const char* condition) {
  const std::string older =
      absl::StrCat(" FROM sessions WHERE ", condition, " AND (created_at, session_id) < (?3, ?4)");
  return {.find_end = absl::StrCat("SELECT created_at, session_id", older,
                                   " ORDER BY created_at DESC, session_id DESC LIMIT 1 OFFSET ?5"),
          .read = absl::StrCat(
              "SELECT ", kSessionColumns, older, " AND (created_at, session_id) >= (?5, ?6)",
              " AND (?7 = '' OR session_id = ?8 OR lower(display_name) LIKE ?7 ESCAPE '\\'",
              "  OR display_name LIKE '", kEncoded, "')",
              " AND (?9 = '' OR user_metadata LIKE ?9 ESCAPE '\\' OR user_metadata LIKE '",
              kEncoded, "') ORDER BY created_at DESC, session_id DESC")};
}

// Every scan binds the project, so that all statements have the same parameters.
const std::array<Scan, 3>& Scans() {
  static const std::array<Scan, 3> scans = {
      MakeScan("tenant_id = ?1 AND ?2 = ?2"),
      MakeScan("tenant_id = ?1 AND project_id = ?2 AND project_id <> ''"),
      MakeScan("tenant_id = ?1 AND ?2 = ?2 AND state = 0")};
  return scans;
}

const Scan& ScanFor(const SessionQuery& query) {
  if (query.project_ids.size() == 1) return Scans()[1];
  const bool is_active_only =
      query.has_statuses && query.statuses == std::vector<std::string>{"active"};
  return Scans()[is_active_only ? 2 : 0];
}

// Returns the pattern of texts that contain `part`; empty: any text.
std::string PatternOf(const std::string& part) {
  if (part.empty() || part.size() > kMaxPatternBytes) return "";
  return absl::StrCat("%", absl::StrReplaceAll(part, {{"\\", "\\\\"}, {"%", "\\%"}, {"_", "\\_"}}),
                      "%");
}

// A session matches only if its name contains the longest word too.
std::string NamePattern(const SessionQuery& query) {
  const auto longest = std::max_element(
      query.name_words.begin(), query.name_words.end(),
      [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  return longest == query.name_words.end() ? "" : PatternOf(*longest);
}

std::string MetadataPattern(const SessionQuery& query) {
  if (query.user_metadata.empty()) return "";
  return PatternOf(EncodeMetadata({query.user_metadata.front()}));
}

using SessionPlace = std::pair<int64_t, std::string>;  // creation time and id of a session

std::optional<SessionRow> FindById(SqlConnection& connection, const std::string& tenant_id,
                                   const SessionQuery& query, const SessionPlace& before) {
  Query sql = connection.Prepare(absl::StrCat(
      "SELECT ", kSessionColumns, " FROM sessions WHERE tenant_id = ? AND session_id = ?"));
  std::vector<SessionRow> rows = ReadRows<SessionRow>(sql.Bind(tenant_id, query.session_id));
  if (rows.empty() || !Matches(rows[0], query)) return std::nullopt;
  if (SessionPlace(rows[0].created_at, rows[0].session_id) >= before) return std::nullopt;
  return std::move(rows[0]);
}

}  // namespace

SessionPage FindSessions(SqlConnection& connection, const std::string& tenant_id,
                         const SessionQuery& query) {
  SessionPage page;
  if (query.limit < 1) return page;
  const bool from_start = query.before_created_at == 0;
  const SessionPlace before(
      from_start ? std::numeric_limits<int64_t>::max() : query.before_created_at,
      query.before_session_id);
  if (!query.session_id.empty() && query.name_words.empty()) {
    if (auto row = FindById(connection, tenant_id, query, before)) page.rows.push_back(*row);
    return page;
  }
  const Scan& scan = ScanFor(query);
  const std::string project = query.project_ids.empty() ? "" : query.project_ids.front();
  SessionPlace end(std::numeric_limits<int64_t>::min(), "");
  {
    Query sql = connection.Prepare(scan.find_end);
    sql.Bind(tenant_id, project, before.first, before.second, kMaxSearchedSessions - 1);
    if (sql.Next()) {
      end.first = sql.Int();
      end.second = sql.Text();
      page.next_created_at = end.first;
      page.next_session_id = end.second;
    }
  }
  Query sql = connection.Prepare(scan.read);
  sql.Bind(tenant_id, project, before.first, before.second, end.first, end.second,
           NamePattern(query), query.session_id, MetadataPattern(query));
  while (sql.Next()) {
    SessionRow row;
    ReadRow(sql, row);
    if (!Matches(row, query)) continue;
    if (std::ssize(page.rows) == query.limit) {
      page.next_created_at = page.rows.back().created_at;
      page.next_session_id = page.rows.back().session_id;
      break;
    }
    page.rows.push_back(std::move(row));
  }
  return page;
}

std::vector<std::string> SessionSearchStatements() {
  std::vector<std::string> all;
  for (const Scan& scan : Scans()) {
    all.push_back(scan.find_end);
    all.push_back(scan.read);
  }
  return all;
}

}  // namespace lathe::engine
