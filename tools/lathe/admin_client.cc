#include "tools/lathe/admin_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "protos/lathe/v1/engine.grpc.pb.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// Deadline margin for the engine's answer after its drain timeout.
constexpr absl::Duration kDrainMargin = absl::Seconds(5);
constexpr char kAdminScope[] = "admin";
constexpr char kOperatorScope[] = "operator";
constexpr char kFirstTenant[] = "default";

}  // namespace

AdminClient::AdminClient(const DataDir& dir)
    : address_(dir.SocketAddress("admin")), data_dir_(dir.path().string()) {}

std::unique_ptr<v1::Admin::Stub> AdminClient::Stub() {
  return v1::Admin::NewStub(MakeChannel(address_));
}

absl::Status AdminClient::Translate(const grpc::Status& status) const {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return FromGrpcStatus(status);
  return WithDetail(
      absl::UnavailableError(absl::StrCat("no engine answers for ", data_dir_,
                                          "; start it with `lathe up`, or name another directory "
                                          "with --data-dir (",
                                          status.error_message(), ")")),
      "not_running");
}

absl::StatusOr<v1::GetStatusResponse> AdminClient::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::GetStatusResponse response;
  RETURN_IF_ERROR(Translate(Stub()->GetStatus(&context, {}, &response)));
  return response;
}

absl::StatusOr<v1::CreateKeyResponse> AdminClient::CreateKey(const v1::CreateKeyRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::CreateKeyResponse response;
  RETURN_IF_ERROR(Translate(Stub()->CreateKey(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::ListKeysResponse> AdminClient::ListKeys() {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::ListKeysResponse response;
  RETURN_IF_ERROR(Translate(Stub()->ListKeys(&context, {}, &response)));
  return response;
}

absl::Status AdminClient::RevokeKey(const std::string& key_id) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::RevokeKeyRequest request;
  request.set_key_id(key_id);
  v1::RevokeKeyResponse response;
  return Translate(Stub()->RevokeKey(&context, request, &response));
}

absl::StatusOr<v1::RotateKeyResponse> AdminClient::RotateKey(const v1::RotateKeyRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::RotateKeyResponse response;
  RETURN_IF_ERROR(Translate(Stub()->RotateKey(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::ListTenantsResponse> AdminClient::ListTenants() {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::ListTenantsResponse response;
  RETURN_IF_ERROR(Translate(Stub()->ListTenants(&context, {}, &response)));
  return response;
}

absl::StatusOr<v1::SetQuotaResponse> AdminClient::SetQuota(const v1::SetQuotaRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::SetQuotaResponse response;
  RETURN_IF_ERROR(Translate(Stub()->SetQuota(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::ExportAuditResponse> AdminClient::ExportAudit(
    const v1::ExportAuditRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::ExportAuditResponse response;
  RETURN_IF_ERROR(Translate(Stub()->ExportAudit(&context, request, &response)));
  return response;
}

absl::Status AdminClient::PruneAudit(const v1::PruneAuditRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::PruneAuditResponse response;
  return Translate(Stub()->PruneAudit(&context, request, &response));
}

absl::Status AdminClient::MoveModel(const v1::MoveModelRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::MoveModelResponse response;
  return Translate(Stub()->MoveModel(&context, request, &response));
}

absl::Status AdminClient::DrainGroup(const std::string& group) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::DrainGroupRequest request;
  request.set_group(group);
  v1::DrainGroupResponse response;
  return Translate(Stub()->DrainGroup(&context, request, &response));
}

absl::Status AdminClient::ResumeGroup(const std::string& group) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::ResumeGroupRequest request;
  request.set_group(group);
  v1::ResumeGroupResponse response;
  return Translate(Stub()->ResumeGroup(&context, request, &response));
}

absl::Status AdminClient::RemoveGroup(const std::string& group) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::RemoveGroupRequest request;
  request.set_group(group);
  v1::RemoveGroupResponse response;
  return Translate(Stub()->RemoveGroup(&context, request, &response));
}

absl::StatusOr<std::string> AdminClient::CreateTicket() {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::CreateTicketResponse response;
  RETURN_IF_ERROR(Translate(Stub()->CreateTicket(&context, {}, &response)));
  return response.ticket();
}

absl::StatusOr<v1::ListTrashResponse> AdminClient::ListTrash() {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::ListTrashResponse response;
  RETURN_IF_ERROR(Translate(Stub()->ListTrash(&context, {}, &response)));
  return response;
}

absl::StatusOr<v1::AdoptCheckpointResponse> AdminClient::AdoptCheckpoint(
    const v1::AdoptCheckpointRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  v1::AdoptCheckpointResponse response;
  RETURN_IF_ERROR(Translate(Stub()->AdoptCheckpoint(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::DrainResponse> AdminClient::Drain(absl::Duration timeout,
                                                     grpc::ClientContext& context) {
  SetDeadline(context, timeout + kDrainMargin);
  v1::DrainRequest request;
  request.set_timeout_ms(absl::ToInt64Milliseconds(timeout));
  v1::DrainResponse response;
  RETURN_IF_ERROR(Translate(Stub()->Drain(&context, request, &response)));
  return response;
}

absl::StatusOr<std::vector<std::string>> KeyScopes(const DataDir& dir, const std::string& api_key) {
  auto stub = v1::Engine::NewStub(MakeChannel(dir.SocketAddress("engine")));
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  context.AddMetadata("x-api-key", api_key);
  v1::AuthenticateResponse response;
  RETURN_IF_ERROR(FromGrpcStatus(stub->Authenticate(&context, {}, &response)));
  return std::vector<std::string>(response.scopes().begin(), response.scopes().end());
}

absl::StatusOr<bool> EnsureAdminKey(const DataDir& dir) {
  if (const auto present = ReadTextFile(dir.admin_key()); present.ok() && !present->empty()) {
    const auto scopes = KeyScopes(dir, *present);
    if (!scopes.ok() && !absl::IsUnauthenticated(scopes.status())) return scopes.status();
    const auto is_enough = [](const std::string& scope) {
      return scope == kAdminScope || scope == kOperatorScope;
    };
    if (scopes.ok() && std::any_of(scopes->begin(), scopes->end(), is_enough)) return false;
  }
  v1::CreateKeyRequest request;
  request.set_tenant(kFirstTenant);
  request.set_name("lathe up");
  request.add_scopes(kAdminScope);
  request.add_scopes(kOperatorScope);
  ASSIGN_OR_RETURN(const v1::CreateKeyResponse created, AdminClient(dir).CreateKey(request));
  RETURN_IF_ERROR(WriteFileAtomically(dir.admin_key(), created.api_key() + "\n", 0600));
  return true;
}

}  // namespace lathe::cli
