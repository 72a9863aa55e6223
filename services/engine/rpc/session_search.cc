#include "services/engine/rpc/row_convert.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr int64_t kDefaultLimit = 50;
constexpr int64_t kMaxLimit = 200;
constexpr int kMaxOwners = 10;
// Far above plausible requests; the bounds limit the work per session.
constexpr int kMaxProjects = 100;
constexpr int kMaxStatuses = 16;

constexpr const char* kFinishReasons[] = {"success", "errored", "interrupted"};

bool IsFinishReason(const std::string& reason) {
  return std::find(std::begin(kFinishReasons), std::end(kFinishReasons), reason) !=
         std::end(kFinishReasons);
}

absl::Status CheckCount(int count, int limit, const char* field) {
  if (count <= limit) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s has %d entries, limit is %d", field, count, limit));
}

absl::Status CheckOwner(const v1::SearchSessionsRequest& request) {
  const std::string& owner = request.owner();
  RETURN_IF_ERROR(CheckCount(request.owner_urns_size(), kMaxOwners, "owner.owner_urns"));
  if (owner == "user") {
    if (request.owner_urns_size() > 0) return absl::OkStatus();
    return Invalid("invalid_field", "owner.owner_urns",
                   absl::StrFormat("owner.owner_urns has 0 entries, expected 1 to %d", kMaxOwners));
  }
  if (!owner.empty() && owner != "own" && owner != "accessible") {
    return Invalid("invalid_field", "owner.type",
                   absl::StrFormat("owner.type is '%s', expected own, accessible or user",
                                   owner.substr(0, kMaxTextBytes)));
  }
  if (request.owner_urns_size() == 0) return absl::OkStatus();
  return Invalid("invalid_field", "owner.owner_urns",
                 "owner.owner_urns is given, but owner.type is not user");
}

// Adds the finish reasons, or "active", of sessions with this status.
absl::Status AddStatus(const v1::SessionStatusQuery& status, SessionQuery& query) {
  const std::string& type = status.type();
  for (const std::string& reason : status.reasons()) {
    if (IsFinishReason(reason)) continue;
    return Invalid("invalid_field", "statuses.reasons",
                   absl::StrFormat("statuses.reasons has '%s', expected success, errored or "
                                   "interrupted",
                                   reason.substr(0, kMaxTextBytes)));
  }
  if (type != "client_finished" && status.reasons_size() > 0) {
    return Invalid("invalid_field", "statuses.reasons",
                   absl::StrFormat("statuses.reasons is given with type '%s', which has none",
                                   type.substr(0, kMaxTextBytes)));
  }
  if (type == "active") {
    query.statuses.push_back(type);
  } else if (type == "client_finished" && status.reasons_size() > 0) {
    query.statuses.insert(query.statuses.end(), status.reasons().begin(), status.reasons().end());
  } else if (type == "client_finished") {
    query.statuses.insert(query.statuses.end(), std::begin(kFinishReasons),
                          std::end(kFinishReasons));
  } else if (type != "cancelled" && type != "failed") {
    return Invalid("invalid_field", "statuses.type",
                   absl::StrFormat("statuses.type is '%s', expected active, client_finished, "
                                   "cancelled or failed",
                                   type.substr(0, kMaxTextBytes)));
  }
  return absl::OkStatus();
}

absl::Status AddStatuses(const v1::SearchSessionsRequest& request, SessionQuery& query) {
  RETURN_IF_ERROR(CheckCount(request.statuses_size(), kMaxStatuses, "statuses"));
  query.has_statuses = request.statuses_size() > 0;
  for (const v1::SessionStatusQuery& status : request.statuses()) {
    RETURN_IF_ERROR(AddStatus(status, query));
  }
  return absl::OkStatus();
}

absl::Status AddProjects(const v1::SearchSessionsRequest& request, SessionQuery& query) {
  RETURN_IF_ERROR(CheckCount(request.project_ids_size(), kMaxProjects, "project_ids"));
  for (const std::string& project_id : request.project_ids()) {
    RETURN_IF_ERROR(ValidateProjectId(project_id, "project_ids"));
    query.project_ids.push_back(project_id);
  }
  return absl::OkStatus();
}

absl::Status AddName(const v1::SearchSessionsRequest& request, SessionQuery& query) {
  if (!request.has_display_name()) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateText(request.display_name(), kMaxTextBytes, "display_name"));
  query.name_words = absl::StrSplit(absl::AsciiStrToLower(request.display_name()),
                                    absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  if (!query.name_words.empty()) return absl::OkStatus();
  return Invalid("invalid_field", "display_name", "display_name has no word to search for");
}

absl::Status AddPage(const v1::SearchSessionsRequest& request, SessionQuery& query) {
  query.limit = request.has_limit() ? request.limit() : kDefaultLimit;
  if (query.limit < 1 || query.limit > kMaxLimit) {
    return Invalid("bad_page", "limit",
                   absl::StrFormat("limit is %d, expected 1 to %d", query.limit, kMaxLimit));
  }
  if (!request.has_cursor()) return absl::OkStatus();
  query.before_created_at = ToNanos(request.cursor().last_created_at());
  query.before_session_id = request.cursor().last_session_id();
  RETURN_IF_ERROR(ValidateText(query.before_session_id, kMaxTextBytes, "cursor.last_session_id"));
  if (query.before_created_at > 0) return absl::OkStatus();
  return Invalid("bad_page", "cursor.last_created_at",
                 "cursor.last_created_at is before 1970; give a page's next_cursor");
}

}  // namespace

absl::StatusOr<SessionQuery> ToQuery(const v1::SearchSessionsRequest& request) {
  SessionQuery query;
  RETURN_IF_ERROR(ValidateText(request.session_id(), kMaxTextBytes, "session_id"));
  query.session_id = request.session_id();
  ASSIGN_OR_RETURN(query.user_metadata, ValidateMetadata(request.user_metadata()));
  RETURN_IF_ERROR(CheckOwner(request));
  RETURN_IF_ERROR(AddName(request, query));
  RETURN_IF_ERROR(AddProjects(request, query));
  RETURN_IF_ERROR(AddStatuses(request, query));
  RETURN_IF_ERROR(AddPage(request, query));
  return query;
}

bool AsksFor(const v1::SearchSessionsRequest& request, const std::string& owner) {
  return request.owner() != "user" ||
         std::find(request.owner_urns().begin(), request.owner_urns().end(), owner) !=
             request.owner_urns().end();
}

v1::SessionSummary ToSummary(const SessionRow& row, const StoredUse& use,
                             const std::string& owner) {
  v1::SessionSummary summary;
  summary.set_session_id(row.session_id);
  summary.set_owner(owner);
  summary.set_project_id(row.project_id);
  *summary.mutable_created_at() = ToTimestamp(row.created_at);
  summary.set_display_name(row.display_name);
  SetMetadata(row.user_metadata, summary.mutable_user_metadata());
  summary.set_num_checkpoints(use.num_checkpoints);
  summary.set_stored_bytes(use.stored_bytes);
  if (row.state == SessionState::kActive) {
    summary.mutable_status()->set_type("active");
  } else if (IsFinishReason(row.finish_reason)) {
    summary.mutable_status()->set_type("client_finished");
    summary.mutable_status()->set_reason(row.finish_reason);
    summary.mutable_status()->set_detail(row.finish_detail);
  }
  return summary;
}

}  // namespace lathe::engine
