#include "services/engine/rpc/admin_service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/logging/logging.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/drain_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/trash.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

// Takes turns with the tenants. No tenant has this id.
constexpr char kOperator[] = "";

}  // namespace

AdminService::AdminService(Runtime& runtime, KeyRing& keys, ReadThreads& reads,
                           AttachedGroups attached_groups)
    : runtime_(runtime), keys_(keys), reads_(reads), attached_groups_(std::move(attached_groups)) {}

AdminService::~AdminService() = default;

template <typename Change>
AdminService::Reactor* AdminService::Decide(Context* context, Change change) {
  Reactor* const reactor = context->DefaultReactor();
  runtime_.Call(std::move(change), [reactor](const Answer& answer) {
    reactor->Finish(answer.error ? ToGrpcStatus(ToStatus(*answer.error)) : grpc::Status::OK);
  });
  return reactor;
}

AdminService::Reactor* AdminService::Read(Context* context, std::function<absl::Status()> read) {
  Reactor* const reactor = context->DefaultReactor();
  RunRead(reads_, kOperator, reactor, std::move(read));
  return reactor;
}

AdminService::Reactor* AdminService::CreateKey(Context* context,
                                               const v1::CreateKeyRequest* request,
                                               v1::CreateKeyResponse* response) {
  const absl::StatusOr<KeyRing::NewKey> key = keys_.Create(
      request->tenant(), request->name(), {request->scopes().begin(), request->scopes().end()},
      request->has_expires_in_seconds() ? absl::Seconds(request->expires_in_seconds())
                                        : absl::InfiniteDuration());
  if (key.ok()) {
    LogInfo("key created", {{"key_id", key->key_id}, {"tenant", request->tenant()}});
    SetNewKey(*key, response);
  }
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(key.status()));
  return reactor;
}

AdminService::Reactor* AdminService::ListKeys(Context* context, const v1::ListKeysRequest*,
                                              v1::ListKeysResponse* response) {
  for (const KeyRing::ListedKey& key : keys_.List()) {
    *response->add_keys() = ToProto(key);
  }
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

AdminService::Reactor* AdminService::RevokeKey(Context* context,
                                               const v1::RevokeKeyRequest* request,
                                               v1::RevokeKeyResponse*) {
  const absl::Status status = keys_.Revoke(request->key_id());
  if (status.ok()) LogInfo("key revoked", {{"key_id", request->key_id()}});
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

AdminService::Reactor* AdminService::RotateKey(Context* context,
                                               const v1::RotateKeyRequest* request,
                                               v1::RotateKeyResponse* response) {
  const absl::StatusOr<KeyRing::NewKey> key =
      keys_.Rotate(request->key_id(), absl::Seconds(request->overlap_seconds()));
  if (key.ok()) {
    LogInfo("key rotated", {{"key_id", request->key_id()}, {"new_key_id", key->key_id}});
    SetNewKey(*key, response);
  }
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(key.status()));
  return reactor;
}

AdminService::Reactor* AdminService::CreateTicket(Context* context, const v1::CreateTicketRequest*,
                                                  v1::CreateTicketResponse* response) {
  const absl::StatusOr<std::string> ticket = keys_.users().MakeTicket();
  if (ticket.ok()) response->set_ticket(*ticket);
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(ticket.status()));
  return reactor;
}

AdminService::Reactor* AdminService::ListTenants(Context* context,
                                                 const v1::ListTenantsRequest* request,
                                                 v1::ListTenantsResponse* response) {
  return Read(context, [this, request, response]() -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<TenantRow> tenants, runtime_.store().ListTenants());
    std::ranges::sort(tenants, {}, &TenantRow::name);
    const auto count = static_cast<int64_t>(tenants.size());
    const int64_t limit = request->limit() > 0 ? request->limit() : count;
    ASSIGN_OR_RETURN(
        *response,
        DescribeTenants(runtime_, PageOf(tenants, {.limit = limit, .offset = request->offset()})));
    response->set_total_count(count);
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> AdminService::AuditBefore(const google::protobuf::Timestamp& before) const {
  // An entry is given its time before it is committed. After a minute it is there or lost.
  constexpr int64_t kSettled = 60 * kSecond;
  const int64_t nanos = before.seconds() * kSecond + before.nanos();
  if (before.seconds() >= 0 && nanos <= runtime_.NowNanos() - kSettled) return nanos;
  return Invalid("invalid_field", "before",
                 absl::StrCat("before is ", absl::FormatTime(absl::FromUnixNanos(nanos)),
                              ", must be at least a minute ago"));
}

absl::Status AdminService::DescribeAudit(const v1::ExportAuditRequest& request,
                                         v1::ExportAuditResponse* response) {
  constexpr int64_t kMaxEntries = 2000;
  ASSIGN_OR_RETURN(const int64_t before, AuditBefore(request.before()));
  ASSIGN_OR_RETURN(const AuditPage page,
                   runtime_.store().ExportAudit(before, request.after_id(), kMaxEntries));
  if (page.last_id) response->set_last_id(*page.last_id);
  for (const NumberedAudit& entry : page.entries) {
    v1::ExportedAuditEntry* const exported = response->add_entries();
    const std::string tenant = keys_.TenantName(entry.row.tenant_id);
    exported->set_id(entry.id);
    exported->set_tenant(tenant.empty() ? entry.row.tenant_id : tenant);
    exported->set_resource(entry.row.resource);
    *exported->mutable_entry() = ToProto(entry.row);
  }
  return absl::OkStatus();
}

AdminService::Reactor* AdminService::ExportAudit(Context* context,
                                                 const v1::ExportAuditRequest* request,
                                                 v1::ExportAuditResponse* response) {
  return Read(context, [this, request, response] { return DescribeAudit(*request, response); });
}

absl::Status AdminService::DeleteAudit(const v1::PruneAuditRequest& request) {
  ASSIGN_OR_RETURN(const int64_t before, AuditBefore(request.before()));
  // The log of no tenant: it is about the entries of all.
  const AuditRow record{.at = runtime_.NowNanos(),
                        .tenant_id = "",
                        .resource = "organizations",
                        .event = "audit_prune",
                        .actor = "",
                        .object = absl::StrCat(request.through_id()),
                        .outcome = "ok",
                        .details = {{"num_entries", absl::StrCat(request.num_entries())}}};
  RETURN_IF_ERROR(runtime_.store().PruneAudit({.before = before,
                                               .after_id = request.after_id(),
                                               .through_id = request.through_id(),
                                               .num_entries = request.num_entries()},
                                              record));
  LogInfo("audit log pruned", {{"through_id", absl::StrCat(request.through_id())},
                               {"entries", absl::StrCat(request.num_entries())}});
  return absl::OkStatus();
}

AdminService::Reactor* AdminService::PruneAudit(Context* context,
                                                const v1::PruneAuditRequest* request,
                                                v1::PruneAuditResponse*) {
  return Read(context, [this, request] { return DeleteAudit(*request); });
}

AdminService::Reactor* AdminService::SetQuota(Context* context, const v1::SetQuotaRequest* request,
                                              v1::SetQuotaResponse* response) {
  const auto change = [&]() -> absl::StatusOr<engine::SetQuota> {
    ASSIGN_OR_RETURN(const std::string tenant_id, keys_.TenantId(request->tenant()));
    return PlanQuota(runtime_, tenant_id, *request, /*actor=*/"");
  }();
  if (!change.ok()) {
    Reactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(change.status()));
    return reactor;
  }
  *response->mutable_quota() = EffectiveQuota(runtime_, change->row);
  return Decide(context, *change);
}

AdminService::Reactor* AdminService::MoveModel(Context* context,
                                               const v1::MoveModelRequest* request,
                                               v1::MoveModelResponse*) {
  LogInfo("migration of a model requested",
          {{"model_id", request->model_id()}, {"group", request->group()}});
  return Decide(context,
                engine::MoveModel{.model_id = request->model_id(), .group = request->group()});
}

AdminService::Reactor* AdminService::DrainGroup(Context* context,
                                                const v1::DrainGroupRequest* request,
                                                v1::DrainGroupResponse*) {
  LogInfo("drain of a group requested", {{"group", request->group()}});
  return Decide(context, engine::DrainGroup{.group = request->group(), .is_draining = true});
}

AdminService::Reactor* AdminService::ResumeGroup(Context* context,
                                                 const v1::ResumeGroupRequest* request,
                                                 v1::ResumeGroupResponse*) {
  LogInfo("return of a group to service requested", {{"group", request->group()}});
  return Decide(context, engine::DrainGroup{.group = request->group(), .is_draining = false});
}

AdminService::Reactor* AdminService::RemoveGroup(Context* context,
                                                 const v1::RemoveGroupRequest* request,
                                                 v1::RemoveGroupResponse*) {
  LogInfo("removal of a group requested", {{"group", request->group()}});
  return Decide(context, engine::RemoveGroup{.group = request->group()});
}

AdminService::Reactor* AdminService::GetStatus(Context* context, const v1::GetStatusRequest*,
                                               v1::GetStatusResponse* response) {
  *response = DescribeEngine(runtime_, keys_, attached_groups_());
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

AdminService::Reactor* AdminService::ListTrash(Context* context, const v1::ListTrashRequest*,
                                               v1::ListTrashResponse* response) {
  return Read(context, [this, response] {
    ASSIGN_OR_RETURN(*response, DescribeTrash(runtime_, keys_));
    return absl::OkStatus();
  });
}

AdminService::Reactor* AdminService::AdoptCheckpoint(Context* context,
                                                     const v1::AdoptCheckpointRequest* request,
                                                     v1::AdoptCheckpointResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  const auto adoption = std::make_shared<absl::StatusOr<engine::AdoptCheckpoint>>();
  const absl::Status accepted = reads_.TryRun(
      kOperator,
      [this, request, adoption] {
        *adoption = PlanAdoption(runtime_, keys_, *request);
        if (!adoption->ok()) return;
        const absl::Status moved = runtime_.checkpoint_dirs().TakeFromTrash(request->dir());
        if (!moved.ok()) *adoption = moved;
      },
      [this, response, reactor, adoption] {
        if (!adoption->ok()) return reactor->Finish(ToGrpcStatus(adoption->status()));
        Adopt(**adoption, response, reactor);
      });
  if (!accepted.ok()) reactor->Finish(ToGrpcStatus(accepted));
  return reactor;
}

void AdminService::Adopt(engine::AdoptCheckpoint adoption, v1::AdoptCheckpointResponse* response,
                         Reactor* reactor) {
  const std::string dir = adoption.checkpoint.dir;
  LogInfo("a checkpoint comes back from the trash",
          {{"dir", dir}, {"path", adoption.checkpoint.tinker_path}});
  runtime_.Call(std::move(adoption), [this, response, reactor, dir](const Answer& answer) {
    response->set_tinker_path(answer.id);
    // A change that is not durable in time may still become so. If it does not, the next start
    // moves the folder back.
    const bool is_refused = answer.error && answer.error->status != absl::StatusCode::kUnavailable;
    if (is_refused) runtime_.checkpoint_dirs().PutBack(dir);
    reactor->Finish(answer.error ? ToGrpcStatus(ToStatus(*answer.error)) : grpc::Status::OK);
  });
}

AdminService::Reactor* AdminService::Drain(Context*, const v1::DrainRequest* request,
                                           v1::DrainResponse* response) {
  return DrainCall::Start(runtime_, *request, response);
}

}  // namespace lathe::engine
