// lathe.v1.Traces: the history of a session's requests.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/traces.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/rpc/signed_text.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service. Authenticates as EngineService does.
class TracesService final : public v1::Traces::CallbackService {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // `secret` is the store's; the signing key of links is derived from it. The others must outlive
  // this and its server.
  TracesService(Runtime& runtime, const KeyRing& keys, ReadThreads& reads,
                const std::string& secret);
  ~TracesService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* DescribeTrace(Context* context, const v1::DescribeTraceRequest* request,
                         v1::DescribeTraceResponse* response) override;
  Reactor* OpenTrace(Context* context, const v1::OpenTraceRequest* request,
                     v1::OpenTraceResponse* response) override;
  Reactor* ListRunRequests(Context* context, const v1::ListRunRequestsRequest* request,
                           v1::ListRunRequestsResponse* response) override;

 private:
  // Content of a token.
  struct Link {
    std::string key_id;  // key that asked for the link
    std::string session_id;
  };
  std::string Sign(const Link& link, absl::Time expires_at) const;
  // InvalidArgument: this did not sign it. OutOfRange ("link_expired"): expired.
  absl::StatusOr<Link> Verify(const std::string& token) const;
  absl::StatusOr<SessionRow> FindSession(const Caller& caller, const std::string& session_id) const;
  absl::Status Open(const Caller& caller, const Link& link, v1::OpenTraceResponse* response) const;

  Runtime& runtime_;
  const KeyRing& keys_;
  ReadThreads& reads_;
  const TextSigner signer_;
};

}  // namespace lathe::engine
