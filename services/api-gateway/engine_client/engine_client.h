// The gateway's only use of gRPC for single calls: the engine's services as awaitables.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
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
#include "protos/lathe/v1/engine.grpc.pb.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// The service of an async stub. Specialised beside the include of each further service.
template <typename Async>
struct ServiceOf;
template <>
struct ServiceOf<v1::Engine::StubInterface::async_interface> {
  using type = v1::Engine;
};

// Ends a call before its time, from any thread. Of one call; outlives it.
class CallStop {
 public:
  // The call ends with Cancelled, at once if it has yet to begin.
  void Stop();

 private:
  friend class EngineClient;

  void Begin(grpc::ClientContext& context);
  void End();

  absl::Mutex mu_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// Any thread. No call may be in progress when it is destroyed.
class EngineClient {
 public:
  using AsyncStub = v1::Engine::StubInterface::async_interface;
  // A unary method of one of the engine's services: &EngineClient::AsyncStub::CreateSession.
  template <typename Async, typename Req, typename Resp>
  using UnaryMethod = void (Async::*)(grpc::ClientContext*, const Req*, Resp*,
                                      std::function<void(grpc::Status)>);

  static constexpr absl::Duration kDefaultTimeout = absl::Seconds(40);

  // `addresses` ("unix:PATH" or "HOST:PORT"), not empty: an engine and its standbys. Which of them
  // calls go to is the business of whoever keeps a stream to it, and knows first.
  explicit EngineClient(const std::vector<std::string>& addresses, const Dialer& dialer = {});

  // One try, on behalf of `api_key` (empty: none). Resumes on the coroutine's executor. Unavailable
  // at once while the engine cannot be reached. `stop`, if any, can end it.
  template <typename Async, typename Req, typename Resp>
  asio::awaitable<absl::StatusOr<Resp>> Call(UnaryMethod<Async, Req, Resp> method,
                                             const Req& request, std::string api_key,
                                             absl::Duration timeout = kDefaultTimeout,
                                             CallStop* stop = nullptr);

  struct Peer;
  // Begins a call on `context`, and gives `on_end` its status. The function and its captures live
  // until then.
  using Start = std::function<void(Peer& peer, grpc::ClientContext* context,
                                   std::function<void(grpc::Status)> on_end)>;
  template <typename Async>
  class StubOf;
  // As Call, for any method: one coroutine is compiled instead of one for each.
  asio::awaitable<absl::Status> Run(Start start, std::string api_key,
                                    absl::Duration timeout = kDefaultTimeout,
                                    CallStop* stop = nullptr);

  // Ends all calls in progress with Cancelled.
  void CancelAll();

  // For streams, which want a connection of their own: the address that is tried now, and a report
  // that it did not answer or does not lead, so that the next one's turn has come.
  std::string current_address() const;
  void ReportUnavailable(const std::string& address);
  // As ReportUnavailable, of one that hangs: calls to it that are in progress end as Unavailable.
  void Abandon(const std::string& address);
  size_t num_addresses() const { return peers_.size(); }
  const Dialer& dialer() const { return dialer_; }

  // An engine that calls can go to.
  struct Peer {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    // Of the busiest service; stubs of the others are made as they are needed.
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
    bool is_abandoned_ = false;  // under the client's mu_
  };
  // What a call that failed ends with.
  static absl::Status Failed(const LiveCall& call, const grpc::Status& status);

  const Dialer dialer_;
  std::vector<Peer> peers_;
  std::atomic<size_t> current_{0};
  mutable absl::Mutex mu_;
  std::set<LiveCall*> calls_ ABSL_GUARDED_BY(mu_);
};

// The stub of a service at a peer; a call needs it until its end.
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
                                                         const Req& request, std::string api_key,
                                                         absl::Duration timeout, CallStop* stop) {
  struct State {
    Resp response;
    StubOf<Async> stub;
  };
  const auto state = std::make_shared<State>();
  // Named: GCC 12 destroys a function object twice that is made inside the co_await.
  Start start = [method, &request, state](Peer& peer, grpc::ClientContext* context,
                                          std::function<void(grpc::Status)> on_end) {
    (state->stub.Of(peer)->*method)(context, &request, &state->response, std::move(on_end));
  };
  const absl::Status status = co_await Run(std::move(start), std::move(api_key), timeout, stop);
  if (!status.ok()) co_return status;
  co_return std::move(state->response);
}

}  // namespace lathe::gateway
