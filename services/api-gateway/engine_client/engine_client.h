// Calls unary methods of the engine's services as awaitables. The gateway makes all its unary gRPC
// calls here.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/status.h"
#include "libs/common/tracing/span_context.h"
#include "protos/lathe/v1/engine.grpc.pb.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// Maps an async stub to its service. The header of each further service specializes it.
template <typename Async>
struct ServiceOf;
template <>
struct ServiceOf<v1::Engine::StubInterface::async_interface> {
  using type = v1::Engine;
};

// Cancels one call early. Any thread. Must outlive the call.
class CallStop {
 public:
  // Ends the call with Cancelled. A call that has not begun ends as soon as it does.
  void Stop();

 private:
  friend class EngineClient;

  void Begin(grpc::ClientContext& context);
  void End();

  absl::Mutex mu_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// On whose behalf a call is made. A key alone suffices.
struct Caller {
  Caller(std::string key) : api_key(std::move(key)) {}  // NOLINT
  Caller(std::string key, const SpanContext& parent) : api_key(std::move(key)), span(parent) {}

  std::string api_key;  // a key, a token or a browser's session; empty: none
  SpanContext span;     // parent of the engine's spans; no context: none
};

// Client of an engine and its standbys. Any thread. No call may be in progress when it is
// destroyed.
class EngineClient {
 public:
  using AsyncStub = v1::Engine::StubInterface::async_interface;
  // A unary method of one of the engine's services: &EngineClient::AsyncStub::CreateSession.
  template <typename Async, typename Req, typename Resp>
  using UnaryMethod = void (Async::*)(grpc::ClientContext*, const Req*, Resp*,
                                      std::function<void(grpc::Status)>);

  static constexpr absl::Duration kDefaultTimeout = absl::Seconds(40);

  // `addresses` ("unix:PATH" or "HOST:PORT", at least one) are an engine and its standbys. Calls go
  // to current_address(). WatchClient keeps a stream to the engine, so it notices a failure first
  // and switches the address with ReportUnavailable or Abandon.
  // Engines on other machines serve only gateways that know the secret in `secret_file` (empty: no
  // engine asks for it).
  explicit EngineClient(const std::vector<std::string>& addresses, const Dialer& dialer = {},
                        std::string secret_file = "");
  // Cancels all calls and waits until no thread of gRPC posts an answer. The io_context of the
  // calls may be destroyed from then on.
  ~EngineClient();

  // Makes one attempt on behalf of `caller`. Resumes on the coroutine's executor.
  // Returns Unavailable at once while the engine cannot be reached. `stop`, if not null, can cancel
  // the call.
  template <typename Async, typename Req, typename Resp>
  asio::awaitable<absl::StatusOr<Resp>> Call(UnaryMethod<Async, Req, Resp> method,
                                             const Req& request, Caller caller,
                                             absl::Duration timeout = kDefaultTimeout,
                                             CallStop* stop = nullptr);

  struct Peer;
  // Begins a call on `context` and passes its status to `on_end`. The function and its captures
  // live until then.
  using Start = std::function<void(Peer& peer, grpc::ClientContext* context,
                                   std::function<void(grpc::Status)> on_end)>;
  template <typename Async>
  class StubOf;
  // Like Call, with the method's types erased: only one coroutine is compiled instead of one per
  // method.
  asio::awaitable<absl::Status> Run(Start start, Caller caller,
                                    absl::Duration timeout = kDefaultTimeout,
                                    CallStop* stop = nullptr);

  // Notes that the answer of a failed request was written to a client of `api_key`. The key's calls
  // of the next second report it, so that the engine does not take them for earlier ones.
  void NoteDelivered(const std::string& request_id, const std::string& api_key);

  // Ends all calls in progress with Cancelled.
  void CancelAll();

  // Adds the gateways' secret to a call that this class does not make. All calls need it.
  void Prove(grpc::ClientContext& context) const;
  // Reads the secret again. The stream of WatchClient does so when it connects, because an engine
  // that was replaced may have another secret.
  void ReadSecret();
  // Returns what clients are told about an error of the engine. Errors that concern only the
  // gateway become Unavailable.
  static absl::Status ForClient(absl::Status error);

  // Address that calls go to now. A stream dials it itself, because it needs a connection of its
  // own.
  std::string current_address() const;
  // Connection to that address, for calls that this class does not make.
  std::shared_ptr<grpc::Channel> current_channel() const { return peers_[current_].channel; }
  // Reports that `address` did not answer or does not lead. If it is the current address, the next
  // address becomes current.
  void ReportUnavailable(const std::string& address);
  // Like ReportUnavailable, for an engine that hangs. Calls to it that are in progress end with
  // Unavailable.
  void Abandon(const std::string& address);
  size_t num_addresses() const { return peers_.size(); }
  const Dialer& dialer() const { return dialer_; }

  // Connection to one engine.
  struct Peer {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    // Stub of lathe.v1.Engine, the busiest service. Stubs of other services are made per call.
    std::unique_ptr<v1::Engine::Stub> stub;
  };

 private:
  // Registers a call for CancelAll, Abandon and `stop`.
  class LiveCall {
   public:
    LiveCall(EngineClient& client, const Peer& peer, grpc::ClientContext& context, CallStop* stop);
    ~LiveCall();
    bool is_abandoned() const;
    LiveCall(const LiveCall&) = delete;
    LiveCall& operator=(const LiveCall&) = delete;

   private:
    friend class EngineClient;

    EngineClient& client_;
    const Peer& peer_;
    grpc::ClientContext& context_;
    CallStop* const stop_;
    bool is_abandoned_ = false;  // guarded by the client's mu_
  };
  // Adds to `context` what was noted for the key.
  void ReportDelivered(const std::string& api_key, grpc::ClientContext& context);
  // Returns the error of a call that failed.
  static absl::Status Failed(const LiveCall& call, const grpc::Status& status);

  const Dialer dialer_;
  std::vector<Peer> peers_;
  std::atomic<size_t> current_{0};
  const std::string secret_file_;
  mutable absl::Mutex mu_;
  std::string secret_ ABSL_GUARDED_BY(mu_);  // empty: none
  std::set<LiveCall*> calls_ ABSL_GUARDED_BY(mu_);
  struct Delivery {
    std::string request_id;
    std::string api_key;
    absl::Time noted;
  };
  std::deque<Delivery> deliveries_ ABSL_GUARDED_BY(mu_);  // oldest first
  // Calls that gRPC has not given its status yet.
  int64_t num_unanswered_ ABSL_GUARDED_BY(mu_) = 0;
};

// Stub of one service at a peer. Must live until the call ends.
template <typename Async>
class EngineClient::StubOf {
 public:
  Async* Of(Peer& peer) {
    if constexpr (std::is_same_v<Service, v1::Engine>) {
      return peer.stub->async();
    } else {
      stub_ = Service::NewStub(peer.channel);
      return stub_->async();
    }
  }

 private:
  using Service = typename ServiceOf<Async>::type;
  std::unique_ptr<typename Service::Stub> stub_;
};

template <typename Async, typename Req, typename Resp>
asio::awaitable<absl::StatusOr<Resp>> EngineClient::Call(UnaryMethod<Async, Req, Resp> method,
                                                         const Req& request, Caller caller,
                                                         absl::Duration timeout, CallStop* stop) {
  struct State {
    Resp response;
    StubOf<Async> stub;
  };
  const auto state = std::make_shared<State>();
  // A named variable, because GCC 12 destroys a function object twice if the co_await expression
  // creates it.
  Start start = [method, &request, state](Peer& peer, grpc::ClientContext* context,
                                          std::function<void(grpc::Status)> on_end) {
    (state->stub.Of(peer)->*method)(context, &request, &state->response, std::move(on_end));
  };
  const absl::Status status = co_await Run(std::move(start), std::move(caller), timeout, stop);
  if (!status.ok()) co_return status;
  co_return std::move(state->response);
}

}  // namespace lathe::gateway
