// The public gRPC service of a gateway: it passes calls to the engine as bytes, without code for
// any method.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/http/byte_budget.h"
#include "services/api-gateway/http/connection.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/http/trusted_proxies.h"
#include "services/api-gateway/http/work_pool.h"

namespace google::protobuf {
class MethodDescriptor;
}  // namespace google::protobuf

namespace lathe::gateway {

// State that the calls of a gateway share. It outlives them.
struct ForwarderContext {
  asio::any_io_executor executor;
  EngineClient& engine;
  WatchClient& watch;
  const ByteBudget& budget;
  // As for HTTP. Called before a message of the call is read.
  Authorize authorize;
  TrustedProxies proxies;
  // Most calls of one key that are open at a time.
  int64_t max_calls_per_key = 0;
  // Also forwards reflection, which needs no key.
  bool reflection = false;
  // Called after each call of a known method; may be empty.
  std::function<void(const Answered&)> on_answered = {};
  // Must outlive the calls. Null: no traces, and a client's traceparent is not forwarded.
  Tracer* tracer = nullptr;
};

// Forwards calls of the engine's public services, without code for each of them (but see Delivery).
// A message is read only once the call's key is
// accepted, and only one at a time in each direction: a side that does not read is not written to.
// Each message reserves its memory. Large ones are counted before they are forwarded, so that the
// engine can parse them. Thread-safe.
class Forwarder final : public grpc::CallbackGenericService {
 public:
  explicit Forwarder(ForwarderContext context);

  // Full names of the forwarded services.
  const std::vector<std::string>& service_names() const { return service_names_; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  class Call;

  // A method that may be called. `route` names it in metrics.
  struct Method {
    const google::protobuf::MethodDescriptor* descriptor = nullptr;  // null: reflection
    Route route;
  };

  // Counts an open call. Returns ResourceExhausted `too_many_calls` if the key is at its bound.
  absl::Status Open(const std::string& api_key);
  void Close(const std::string& api_key);

  const ForwarderContext context_;
  std::map<std::string, Method> methods_;  // key: /package.Service/Method
  std::vector<std::string> service_names_;
  WorkPool pool_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, int64_t> num_calls_ ABSL_GUARDED_BY(mu_);  // key: API key
};

}  // namespace lathe::gateway
