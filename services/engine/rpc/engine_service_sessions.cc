// EngineService: keys, capabilities and sessions.
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

// Time for which a gateway may cache Authenticate. A revocation takes effect within it.
constexpr int64_t kAuthenticateCacheSeconds = 5;

constexpr size_t kMaxTags = 64;
constexpr size_t kMaxDetailBytes = 4096;

absl::StatusOr<SessionRow> MakeSession(const Caller& caller,
                                       const v1::CreateSessionRequest& request) {
  if (static_cast<size_t>(request.tags_size()) > kMaxTags) {
    return Invalid(
        "invalid_field", "tags",
        absl::StrFormat("tags has %d words, limit is %d", request.tags_size(), kMaxTags));
  }
  SessionRow row;
  row.tenant_id = caller.tenant_id;
  row.ordering = request.ordering() == v1::SESSION_ORDERING_SERIAL ? SessionOrdering::kSerial
                                                                   : SessionOrdering::kConcurrent;
  row.tags = absl::StrJoin(request.tags(), ",");
  row.sdk_version = request.sdk_version();
  row.display_name = request.display_name();
  row.project_id = request.project_id();
  RETURN_IF_ERROR(ValidateText(row.tags, kMaxDetailBytes, "tags"));
  RETURN_IF_ERROR(ValidateText(row.sdk_version, kMaxTextBytes, "sdk_version"));
  RETURN_IF_ERROR(ValidateText(row.display_name, kMaxTextBytes, "display_name"));
  if (!row.project_id.empty()) {
    RETURN_IF_ERROR(ValidateProjectId(row.project_id, "project_id"));
  }
  ASSIGN_OR_RETURN(row.user_metadata, ValidateMetadata(request.user_metadata()));
  return row;
}

absl::Status CheckFinishReason(const std::string& reason) {
  if (reason == "success" || reason == "errored" || reason == "interrupted") {
    return absl::OkStatus();
  }
  return Invalid("invalid_field", "reason",
                 absl::StrFormat("reason is '%s', expected success, errored or interrupted",
                                 reason.substr(0, kMaxTextBytes)));
}

}  // namespace

EngineService::EngineService(Runtime& runtime, KeyRing& keys, ReadThreads& reads,
                             ArchiveSigner& archives, AuditLog& audit, const LoraDefaults& lora)
    : runtime_(runtime),
      keys_(keys),
      reads_(reads),
      archives_(archives),
      audit_(audit),
      builder_(runtime, lora) {}

EngineService::~EngineService() = default;

EngineService::Reactor* EngineService::Answer(
    Context* context, RpcAccess access, const std::function<absl::Status(const Caller&)>& read) {
  return AnswerCall(keys_, context, access, read);
}

EngineService::Reactor* EngineService::Read(Context* context, RpcAccess access,
                                            std::function<absl::Status(const Caller&)> read) {
  return ReadCall(reads_, keys_, context, access, std::move(read));
}

EngineService::Reactor* EngineService::Authenticate(Context* context,
                                                    const v1::AuthenticateRequest*,
                                                    v1::AuthenticateResponse* response) {
  return Answer(context, "Engine.Authenticate", [response](const Caller& caller) {
    for (std::string& word : caller.scopes.Words()) response->add_scopes(std::move(word));
    response->set_cache_seconds(kAuthenticateCacheSeconds);
    return absl::OkStatus();
  });
}

EngineService::Reactor* EngineService::GetCapabilities(Context* context,
                                                       const v1::GetCapabilitiesRequest*,
                                                       v1::GetCapabilitiesResponse* response) {
  return Answer(context, "Engine.GetCapabilities", [this, response](const Caller&) {
    for (const BaseModelRow& row : runtime_.directory().ServedModels()) {
      v1::ServedModel& model = *response->add_models();
      model = ToProto(row);
      const QueueStatus queue = QueueOfBaseModel(runtime_, row.name);
      model.set_ready(!queue.paused);
      model.set_reason(queue.reason);
    }
    return absl::OkStatus();
  });
}

EngineService::Reactor* EngineService::CreateSession(Context* context,
                                                     const v1::CreateSessionRequest* request,
                                                     v1::CreateSessionResponse* response) {
  return Change<engine::CreateSession>(
      context, "Engine.CreateSession",
      [request](const Caller& caller) -> absl::StatusOr<engine::CreateSession> {
        ASSIGN_OR_RETURN(SessionRow row, MakeSession(caller, *request));
        return engine::CreateSession{.row = std::move(row)};
      },
      [response](const engine::Answer& answer) { response->set_session_id(answer.id); });
}

// The core drops a session a day after its end; then only the store knows it.
template <typename CoreEvent>
EngineService::Reactor* EngineService::ChangeSession(
    Context* context, RpcAccess access,
    const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
    std::function<void(const engine::Answer*)> fill) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys_, *context, access);
  absl::StatusOr<CoreEvent> event = caller.ok() ? make(*caller) : caller.status();
  if (!event.ok()) {
    reactor->Finish(ToGrpcStatus(event.status()));
    return reactor;
  }
  const std::string session_id = event->session_id;
  runtime_.Call(*std::move(event), [this, reactor, tenant_id = caller->tenant_id, session_id,
                                    fill = std::move(fill)](const engine::Answer& answer) {
    const absl::Status error = answer.error ? ToStatus(*answer.error) : absl::OkStatus();
    if (!absl::IsNotFound(error)) {
      if (error.ok()) fill(&answer);
      reactor->Finish(ToGrpcStatus(error));
      return;
    }
    RunRead(reads_, tenant_id, reactor,
            [this, tenant_id, session_id, fill, error]() -> absl::Status {
              ASSIGN_OR_RETURN(const std::optional<SessionRow> row,
                               runtime_.store().FindSession(tenant_id, session_id));
              if (!row || row->state != SessionState::kEnded) return error;
              fill(nullptr);
              return absl::OkStatus();
            });
  });
  return reactor;
}

EngineService::Reactor* EngineService::Heartbeat(Context* context,
                                                 const v1::HeartbeatRequest* request,
                                                 v1::HeartbeatResponse* response) {
  return ChangeSession<engine::Heartbeat>(
      context, "Engine.Heartbeat",
      [request](const Caller& caller) -> absl::StatusOr<engine::Heartbeat> {
        return engine::Heartbeat{.tenant_id = caller.tenant_id,
                                 .session_id = request->session_id()};
      },
      [response](const engine::Answer* answer) {
        response->set_finished(answer == nullptr || answer->session_finished);
      });
}

EngineService::Reactor* EngineService::FinishSession(Context* context,
                                                     const v1::FinishSessionRequest* request,
                                                     v1::FinishSessionResponse*) {
  return ChangeSession<engine::FinishSession>(
      context, "Engine.FinishSession",
      [request](const Caller& caller) -> absl::StatusOr<engine::FinishSession> {
        RETURN_IF_ERROR(CheckFinishReason(request->reason()));
        RETURN_IF_ERROR(ValidateText(request->detail(), kMaxDetailBytes, "detail"));
        return engine::FinishSession{.tenant_id = caller.tenant_id,
                                     .session_id = request->session_id(),
                                     .reason = request->reason(),
                                     .detail = request->detail()};
      },
      [](const engine::Answer*) {});
}

EngineService::Reactor* EngineService::ListSessions(Context* context,
                                                    const v1::ListSessionsRequest* request,
                                                    v1::ListSessionsResponse* response) {
  return Read(
      context, "Engine.ListSessions",
      [this, request, response](const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const PageBounds page, ValidatePage(request->limit(), request->offset()));
        ASSIGN_OR_RETURN(const Page<SessionRow> sessions,
                         runtime_.store().ListSessions(caller.tenant_id, page.limit, page.offset));
        for (const SessionRow& row : sessions.rows) response->add_session_ids(row.session_id);
        response->set_total_count(sessions.total_count);
        return absl::OkStatus();
      });
}

EngineService::Reactor* EngineService::GetSession(Context* context,
                                                  const v1::GetSessionRequest* request,
                                                  v1::GetSessionResponse* response) {
  return Read(context, "Engine.GetSession",
              [this, request, response](const Caller& caller) -> absl::Status {
                const std::string& id = request->session_id();
                ASSIGN_OR_RETURN(const std::optional<SessionRow> row,
                                 runtime_.store().FindSession(caller.tenant_id, id));
                if (!row) {
                  return WithDetail(
                      absl::NotFoundError(absl::StrFormat("session '%s' does not exist", id)),
                      "not_found", "session_id");
                }
                ASSIGN_OR_RETURN(const std::vector<std::string> runs,
                                 runtime_.store().ModelIdsOfSession(caller.tenant_id, id));
                ASSIGN_OR_RETURN(const std::vector<std::string> samplers,
                                 runtime_.store().SamplerIdsOfSession(caller.tenant_id, id));
                response->set_session_id(id);
                response->mutable_training_run_ids()->Assign(runs.begin(), runs.end());
                response->mutable_sampler_ids()->Assign(samplers.begin(), samplers.end());
                SetMetadata(row->user_metadata, response->mutable_user_metadata());
                response->set_display_name(row->display_name);
                return absl::OkStatus();
              });
}

}  // namespace lathe::engine
