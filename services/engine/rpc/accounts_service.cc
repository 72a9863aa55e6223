#include "services/engine/rpc/accounts_service.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/service_status.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;
constexpr int64_t kMaxUsageDays = 14;
// Bounds the response to about 20 MB.
constexpr int64_t kMaxUsageRows = 100'000;

std::string TimeText(int64_t nanos) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E*SZ", absl::FromUnixNanos(nanos),
                          absl::UTCTimeZone());
}

absl::Status CheckHour(int64_t nanos, const char* field) {
  if (nanos >= 0 && nanos % kHour == 0) return absl::OkStatus();
  return Invalid(
      "bad_window", field,
      absl::StrFormat("%s is %s, expected a whole hour of UTC since 1970", field, TimeText(nanos)));
}

absl::Status CheckWindow(int64_t from, int64_t until, int64_t now) {
  RETURN_IF_ERROR(CheckHour(from, "starting_on"));
  RETURN_IF_ERROR(CheckHour(until, "ending_before"));
  if (from > now) {
    return Invalid("bad_window", "starting_on",
                   absl::StrFormat("starting_on is %s, which is in the future", TimeText(from)));
  }
  const int64_t hours = (until - from) / kHour;
  if (hours >= 1 && hours <= kMaxUsageDays * 24) return absl::OkStatus();
  return Invalid("bad_window", "ending_before",
                 absl::StrFormat("ending_before is %d hours after starting_on, expected 1 to %d "
                                 "(%d days)",
                                 hours, kMaxUsageDays * 24, kMaxUsageDays));
}

absl::Status NoSuchSession(const std::string& session_id) {
  return WithDetail(absl::NotFoundError(absl::StrFormat("session '%s' does not exist", session_id)),
                    "not_found", "session_id");
}

void AppendUsage(const SessionUsage& usage, v1::ListUsageResponse& response) {
  const UsageRow& row = usage.row;
  v1::Usage& proto = *response.add_usage();
  *proto.mutable_bucket_start() = ToTimestamp(row.hour);
  proto.set_base_model(row.base_model);
  proto.set_session_id(row.session_id);
  proto.set_project_id(usage.project_id);
  proto.set_forward_tokens(row.forward_tokens);
  proto.set_forward_backward_tokens(row.forward_backward_tokens);
  proto.set_prefill_tokens(row.prefill_tokens);
  proto.set_cached_prefill_tokens(row.cached_prefill_tokens);
  proto.set_sampled_tokens(row.sampled_tokens);
  proto.set_num_checkpoints(row.num_checkpoints);
  proto.set_stored_bytes(row.stored_bytes);
}

void AppendSessions(const std::vector<SessionUsage>& usage, v1::ListUsageResponse& response) {
  std::map<std::string, const Metadata*> sessions;
  for (const SessionUsage& one : usage) {
    if (!one.row.session_id.empty()) sessions[one.row.session_id] = &one.user_metadata;
  }
  for (const auto& [session_id, metadata] : sessions) {
    v1::UsageSession& session = *response.add_sessions();
    session.set_session_id(session_id);
    SetMetadata(*metadata, session.mutable_user_metadata());
  }
}

}  // namespace

AccountsService::AccountsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads,
                                 AdminService::AttachedGroups attached_groups)
    : runtime_(runtime), keys_(keys), reads_(reads), attached_groups_(std::move(attached_groups)) {}

AccountsService::~AccountsService() = default;

AccountsService::Reactor* AccountsService::AssignSessionProject(
    Context* context, const v1::AssignSessionProjectRequest* request,
    v1::AssignSessionProjectResponse*) {
  return ReadAndChangeCall<engine::AssignSessionProject>(
      reads_, runtime_, keys_, context, "Accounts.AssignSessionProject",
      [this, request](const Caller& caller) -> absl::StatusOr<engine::AssignSessionProject> {
        RETURN_IF_ERROR(ValidateProjectId(request->project_id(), "project_id"));
        ASSIGN_OR_RETURN(const std::optional<SessionRow> row,
                         runtime_.store().FindSession(caller.tenant_id, request->session_id()));
        if (!row) return NoSuchSession(request->session_id());
        return engine::AssignSessionProject{.tenant_id = caller.tenant_id,
                                            .session_id = request->session_id(),
                                            .project_id = request->project_id(),
                                            .actor = caller.key_id};
      },
      [](const Answer&) {});
}

AccountsService::Reactor* AccountsService::ListProjectRuns(
    Context* context, const v1::ListProjectRunsRequest* request, v1::ListRunsResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Accounts.ListProjectRuns",
      [this, request, response](const Caller& caller) -> absl::Status {
        RETURN_IF_ERROR(ValidateProjectId(request->project_id(), "project_id"));
        ASSIGN_OR_RETURN(const PageBounds page, ValidatePage(request->limit(), request->offset()));
        ASSIGN_OR_RETURN(const Page<ModelRow> models,
                         runtime_.store().ListModelsOfProject(
                             caller.tenant_id, request->project_id(), page.limit, page.offset));
        ASSIGN_OR_RETURN(*response, DescribeRuns(runtime_, caller, models));
        return absl::OkStatus();
      });
}

AccountsService::Reactor* AccountsService::SearchSessions(Context* context,
                                                          const v1::SearchSessionsRequest* request,
                                                          v1::SearchSessionsResponse* response) {
  return ReadCall(searches_, keys_, context, "Accounts.SearchSessions",
                  [this, request, response](const Caller& caller) {
                    return Search(caller, *request, *response);
                  });
}

absl::Status AccountsService::RefineCursor(const Caller& caller, SessionQuery& query) {
  if (query.before_session_id.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<SessionRow> last,
                   runtime_.store().FindSession(caller.tenant_id, query.before_session_id));
  if (last) query.before_created_at = last->created_at;
  return absl::OkStatus();
}

absl::Status AccountsService::Search(const Caller& caller, const v1::SearchSessionsRequest& request,
                                     v1::SearchSessionsResponse& response) {
  ASSIGN_OR_RETURN(SessionQuery query, ToQuery(request));
  if (!AsksFor(request, caller.tenant_name)) return absl::OkStatus();
  RETURN_IF_ERROR(RefineCursor(caller, query));
  ASSIGN_OR_RETURN(const SessionPage page,
                   runtime_.store().SearchSessions(caller.tenant_id, query));
  for (const SessionRow& row : page.rows) {
    ASSIGN_OR_RETURN(
        const StoredUse use,
        runtime_.store().StoredUseOfSession(caller.tenant_id, row.session_id, runtime_.NowNanos()));
    *response.add_sessions() = ToSummary(row, use, caller.tenant_name);
  }
  if (page.next_created_at != 0) {
    *response.mutable_next_cursor()->mutable_last_created_at() = ToTimestamp(page.next_created_at);
    response.mutable_next_cursor()->set_last_session_id(page.next_session_id);
  }
  return absl::OkStatus();
}

AccountsService::Reactor* AccountsService::ListUsage(Context* context,
                                                     const v1::ListUsageRequest* request,
                                                     v1::ListUsageResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Accounts.ListUsage",
      [this, request, response](const Caller& caller) -> absl::Status {
        const int64_t from = ToNanos(request->starting_on());
        const int64_t until = ToNanos(request->ending_before());
        RETURN_IF_ERROR(CheckWindow(from, until, runtime_.NowNanos()));
        ASSIGN_OR_RETURN(const std::string tenant_id, keys_.TenantFor(caller, request->tenant()));
        ASSIGN_OR_RETURN(const std::vector<SessionUsage> usage,
                         runtime_.store().ListUsage(tenant_id, from, until, kMaxUsageRows + 1));
        if (static_cast<int64_t>(usage.size()) > kMaxUsageRows) {
          return Invalid("bad_window", "ending_before",
                         absl::StrFormat("the window has more than %d rows of usage; ask for a "
                                         "shorter one",
                                         kMaxUsageRows));
        }
        for (const SessionUsage& one : usage) AppendUsage(one, *response);
        AppendSessions(usage, *response);
        response->set_owner(keys_.TenantName(tenant_id));
        return absl::OkStatus();
      });
}

AccountsService::Reactor* AccountsService::GetCheckpointStorage(
    Context* context, const v1::GetCheckpointStorageRequest* request,
    v1::GetCheckpointStorageResponse* response) {
  return ReadCall(reads_, keys_, context, "Accounts.GetCheckpointStorage",
                  [this, request, response](const Caller& caller) -> absl::Status {
                    if (request->has_project_id()) {
                      RETURN_IF_ERROR(ValidateProjectId(request->project_id(), "project_id"));
                    }
                    ASSIGN_OR_RETURN(
                        const std::vector<ProjectUse> uses,
                        runtime_.store().StoredUseByProject(caller.tenant_id, runtime_.NowNanos()));
                    for (const ProjectUse& use : uses) {
                      if (request->has_project_id() && request->project_id() != use.project_id)
                        continue;
                      v1::ProjectStorage& proto = *response->add_projects();
                      proto.set_project_id(use.project_id);
                      proto.set_num_checkpoints(use.use.num_checkpoints);
                      proto.set_stored_bytes(use.use.stored_bytes);
                    }
                    response->set_owner(caller.tenant_name);
                    return absl::OkStatus();
                  });
}

AccountsService::Reactor* AccountsService::GetServiceStatus(
    Context* context, const v1::GetServiceStatusRequest* request,
    v1::GetServiceStatusResponse* response) {
  // It reads no store, but a tenant may have many models.
  return ReadCall(reads_, keys_, context, "Accounts.GetServiceStatus",
                  [this, request, response](const Caller& caller) -> absl::Status {
                    const int64_t max_models =
                        request->max_models() == 0 ? kDefaultStatusModels : request->max_models();
                    if (max_models < 0 || max_models > kMaxStatusModels) {
                      return Invalid("invalid_field", "max_models",
                                     absl::StrFormat("max_models is %d, it must be 0 to %d",
                                                     max_models, kMaxStatusModels));
                    }
                    *response = DescribeService(runtime_, caller, max_models, attached_groups_());
                    return absl::OkStatus();
                  });
}

}  // namespace lathe::engine
