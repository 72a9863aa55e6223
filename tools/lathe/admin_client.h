// The CLI's calls to a running engine.
#pragma once

#include <grpcpp/client_context.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/admin.grpc.pb.h"
#include "tools/lathe/data_dir.h"

namespace lathe::cli {

// Client of lathe.v1.Admin on the engine's admin socket. Each call opens a new connection, so that
// it reaches a restarted engine at once. Error not_running if no engine answers.
class AdminClient {
 public:
  explicit AdminClient(const DataDir& dir);

  absl::StatusOr<v1::GetStatusResponse> GetStatus(absl::Duration timeout = absl::Seconds(5));
  absl::StatusOr<v1::CreateKeyResponse> CreateKey(const v1::CreateKeyRequest& request);
  absl::StatusOr<v1::ListKeysResponse> ListKeys();
  absl::Status RevokeKey(const std::string& key_id);
  absl::StatusOr<v1::RotateKeyResponse> RotateKey(const v1::RotateKeyRequest& request);
  absl::StatusOr<v1::ListTenantsResponse> ListTenants();
  absl::StatusOr<v1::SetQuotaResponse> SetQuota(const v1::SetQuotaRequest& request);
  absl::StatusOr<v1::ExportAuditResponse> ExportAudit(const v1::ExportAuditRequest& request);
  absl::Status PruneAudit(const v1::PruneAuditRequest& request);
  absl::Status MoveModel(const v1::MoveModelRequest& request);
  absl::Status DrainGroup(const std::string& group);
  absl::Status ResumeGroup(const std::string& group);
  absl::Status RemoveGroup(const std::string& group);
  // Returns a ticket that makes one session of a browser.
  absl::StatusOr<std::string> CreateTicket();
  absl::StatusOr<v1::ListTrashResponse> ListTrash();
  absl::StatusOr<v1::AdoptCheckpointResponse> AdoptCheckpoint(
      const v1::AdoptCheckpointRequest& request);
  // Waits up to `timeout` for the engine to finish accepted work. `context` must be unused;
  // TryCancel on it from another thread ends the wait.
  absl::StatusOr<v1::DrainResponse> Drain(absl::Duration timeout, grpc::ClientContext& context);

 private:
  std::unique_ptr<v1::Admin::Stub> Stub();
  absl::Status Translate(const grpc::Status& status) const;

  const std::string address_;
  const std::string data_dir_;
};

// Asks the engine (lathe.v1.Engine, engine socket) for the scopes of an API key. Unauthenticated if
// the key is unknown.
absl::StatusOr<std::vector<std::string>> KeyScopes(const DataDir& dir, const std::string& api_key);

// Ensures that DIR/admin.key holds a working key with scope admin. Keeps the present key if it
// qualifies; otherwise creates one for tenant `default` and returns true.
absl::StatusOr<bool> EnsureAdminKey(const DataDir& dir);

}  // namespace lathe::cli
