// lathe.v1.Traces: what happened when to a session's requests.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/traces.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Runs on gRPC's threads; authenticates as EngineService does.
class TracesService final : public v1::Traces::CallbackService {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // `secret` signs links. The others must outlive this, and the server that runs it.
  TracesService(Runtime& runtime, const KeyRing& keys, std::string secret);
  ~TracesService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* DescribeTrace(Context* context, const v1::DescribeTraceRequest* request,
                         v1::DescribeTraceResponse* response) override;
  Reactor* OpenTrace(Context* context, const v1::OpenTraceRequest* request,
                     v1::OpenTraceResponse* response) override;

 private:
  struct Claim {
    std::string tenant_id;
    std::string session_id;
  };
  std::string Sign(const Claim& claim, absl::Time expires_at) const;
  // InvalidArgument for what was not signed here, OutOfRange ("link_expired") after its time.
  absl::StatusOr<Claim> Verify(const std::string& token) const;
  absl::StatusOr<SessionRow> FindSession(const Claim& claim) const;
  absl::Status Open(const std::string& token, v1::OpenTraceResponse* response) const;

  Runtime& runtime_;
  const KeyRing& keys_;
  const std::string secret_;
};

}  // namespace lathe::engine
