// The gateway's only use of gRPC for single calls: the engine's services as awaitables.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
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

 private:
  struct Peer {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    // Of the busiest service; stubs of the others are made as they are needed.
    std::unique_ptr<v1::Engine::Stub> stub;
  };
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

template <typename Async, typename Req, typename Resp>
asio::awaitable<absl::StatusOr<Resp>> EngineClient::Call(UnaryMethod<Async, Req, Resp> method,
                                                         const Req& request, std::string api_key,
                                                         absl::Duration timeout, CallStop* stop) {
  using Service = typename ServiceOf<Async>::type;
  struct State {
    grpc::ClientContext context;
    Resp response;
    std::unique_ptr<typename Service::Stub> stub;
  };
  const auto state = std::make_shared<State>();
  SetDeadline(state->context, timeout);
  if (!api_key.empty()) state->context.AddMetadata("x-api-key", api_key);
  Peer& peer = peers_[current_];
  Async* stub = nullptr;
  if constexpr (std::is_same_v<Service, v1::Engine>) {
    stub = peer.stub->async();
  } else {
    state->stub = Service::NewStub(peer.channel);
    stub = state->stub->async();
  }
  const LiveCall live(*this, peer, state->context, stop);
  const auto start = [&](auto&& handler) {
    // std::function wants copies; the work guard keeps the io_context running meanwhile.
    struct Pending {
      std::decay_t<decltype(handler)> resume;
      decltype(asio::make_work_guard(handler)) guard;
      std::shared_ptr<State> state;
    };
    auto guard = asio::make_work_guard(handler);
    auto pending = std::make_shared<Pending>(Pending{std::move(handler), std::move(guard), state});
    (stub->*method)(&state->context, &request, &state->response,
                    [pending = std::move(pending)](grpc::Status answer) mutable {
                      // Nothing of the call stays here, see WatchStream.
                      const auto executor = pending->guard.get_executor();
                      asio::post(executor, [pending = std::move(pending),
                                            answer = std::move(answer)]() mutable {
                        pending->resume(std::move(answer));
                      });
                    });
  };
  const grpc::Status status =
      co_await asio::async_initiate<const asio::use_awaitable_t<>, void(grpc::Status)>(
          start, asio::use_awaitable);
  if (!status.ok()) co_return Failed(live, status);
  co_return std::move(state->response);
}

}  // namespace lathe::gateway
