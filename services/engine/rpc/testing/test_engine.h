// A whole engine in the test's process: real store, core, services and sockets in its own
// directory.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "libs/common/protocol.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/accounts.grpc.pb.h"
#include "protos/lathe/v1/admin.grpc.pb.h"
#include "protos/lathe/v1/engine.grpc.pb.h"
#include "protos/lathe/v1/streaming.grpc.pb.h"
#include "protos/lathe/v1/tenants.grpc.pb.h"
#include "protos/lathe/v1/traces.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/dispatcher/dispatcher.h"
#include "services/engine/rpc/accounts_service.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/checkpoints_service.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/events_stream.h"
#include "services/engine/rpc/groups_service.h"
#include "services/engine/rpc/metrics_service.h"
#include "services/engine/rpc/servers.h"
#include "services/engine/rpc/sign_in_service.h"
#include "services/engine/rpc/streaming_service.h"
#include "services/engine/rpc/tenants_service.h"
#include "services/engine/rpc/testing/fake_worker.h"
#include "services/engine/rpc/traces_service.h"
#include "services/engine/rpc/users_service.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {

class TestEngine {
 public:
  // Workers see an engine of the release with `protocol`.
  explicit TestEngine(ProtocolRange protocol = OwnProtocol());
  ~TestEngine();

  // Stops and starts on the same directory, as a new process would. At most `max_waiting_calls`
  // calls wait for its core.
  void Restart(size_t max_waiting_calls = Runtime::Options().max_waiting_calls);
  void Stop();
  void Start(size_t max_waiting_calls = Runtime::Options().max_waiting_calls);

  // Directory and address of the public services.
  std::filesystem::path checkpoints_dir() const { return dir_.path() / "checkpoints"; }
  // Directory of the bodies that are stored as files.
  std::filesystem::path bodies_dir() const { return dir_.path() / "bodies"; }
  std::string address() const { return "unix:" + dir_.path().string() + "/engine.sock"; }
  v1::Engine::Stub& engine() { return *engine_stub_; }
  v1::Tenants::Stub& tenants() { return *tenants_stub_; }
  v1::Checkpoints::Stub& checkpoints() { return *checkpoints_stub_; }
  v1::Accounts::Stub& accounts() { return *accounts_stub_; }
  v1::Admin::Stub& admin() { return *admin_stub_; }
  // Presented by gateways that call by network.
  static std::string GatewaySecret();
  // Channel to the port for gateways on other machines.
  std::shared_ptr<grpc::Channel> DialByNetwork() const;
  // Channel to engine.sock.
  std::shared_ptr<grpc::Channel> channel() { return engine_channel_; }
  v1::Streaming::Stub& streaming() { return *streaming_stub_; }
  KeyRing& keys() { return *parts_->keys; }
  Runtime& runtime() { return *parts_->runtime; }
  ReadThreads& reads() { return *parts_->reads; }
  FakeClock& clock() { return clock_; }

  // Begins a session of a user of the tenant.
  std::string SignIn(const std::string& subject, UserRole role,
                     const std::string& tenant = "default");
  // Creates a key of the tenant. Empty scopes: the default ones.
  std::string MakeKey(const std::string& tenant, const std::vector<std::string>& scopes = {});
  FakeWorker::Options WorkerOptions() const;
  // Waits until the worker's base model is registered.
  void WaitForBaseModel(const std::string& name);

 private:
  struct Parts {
    std::unique_ptr<SqliteStore> store;
    std::unique_ptr<KeyRing> keys;
    std::unique_ptr<Runtime> runtime;
    std::unique_ptr<Dispatcher> dispatcher;
    std::unique_ptr<ArchiveSigner> archives;
    std::unique_ptr<AuditLog> audit;
    std::unique_ptr<ReadThreads> reads;
    std::unique_ptr<EngineService> engine;
    std::unique_ptr<TenantsService> tenants;
    std::unique_ptr<StreamingService> streaming;
    std::unique_ptr<CheckpointsService> checkpoints;
    std::unique_ptr<AccountsService> accounts;
    std::unique_ptr<TracesService> traces;
    std::unique_ptr<MetricsService> metrics;
    std::unique_ptr<SignInService> sign_in;
    std::unique_ptr<UsersService> users;
    std::unique_ptr<GroupsService> groups;
    std::unique_ptr<EventsService> events;
    std::unique_ptr<AdminService> admin;
    std::unique_ptr<Servers> servers;
  };

  const ProtocolRange protocol_;
  TempDir dir_;
  FakeClock clock_;
  std::unique_ptr<Parts> parts_;
  std::shared_ptr<grpc::Channel> engine_channel_;
  std::unique_ptr<v1::Engine::Stub> engine_stub_;
  std::unique_ptr<v1::Tenants::Stub> tenants_stub_;
  std::unique_ptr<v1::Checkpoints::Stub> checkpoints_stub_;
  std::unique_ptr<v1::Accounts::Stub> accounts_stub_;
  std::unique_ptr<v1::Admin::Stub> admin_stub_;
  std::unique_ptr<v1::Streaming::Stub> streaming_stub_;
};

// The metadata and deadline of one call.
class CallContext {
 public:
  // `key` may also be a browser's session.
  explicit CallContext(const std::string& key);
  operator grpc::ClientContext*() { return &context_; }  // NOLINT

 private:
  grpc::ClientContext context_;
};

}  // namespace lathe::engine
