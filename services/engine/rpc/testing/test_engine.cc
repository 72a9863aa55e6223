#include "services/engine/rpc/testing/test_engine.h"

#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/cluster_secret.h"
#include "services/engine/rpc/authenticated_call.h"

namespace lathe::engine {
namespace {

constexpr char kWorkerSecret[] = "worker-secret";

}  // namespace

TestEngine::TestEngine(ProtocolRange protocol) : protocol_(protocol) { Start(); }

TestEngine::~TestEngine() { Stop(); }

void TestEngine::Start(size_t max_waiting_calls) {
  parts_ = std::make_unique<Parts>();
  Parts& p = *parts_;
  auto store = SqliteStore::Open(
      {.database = dir_.path() / "lathe.db", .bodies_dir = dir_.path() / "bodies"});
  INFO(store.status());
  REQUIRE(store.ok());
  p.store = *std::move(store);
  p.keys = std::make_unique<KeyRing>(
      *p.store, clock_, GatewaySecret(),
      UserBook::Options{.role_map = *RoleMap::Parse({"groups=ops:operator", "groups=lab:member"})});
  REQUIRE(p.keys->Refresh().ok());
  Runtime::Options options;
  options.max_waiting_calls = max_waiting_calls;
  options.checkpoints_dir = dir_.path() / "checkpoints";
  options.on_fatal = [](const absl::Status& status) {
    fprintf(stderr, "store failed: %s\n", status.ToString().c_str());
    std::abort();
  };
  p.runtime = std::make_unique<Runtime>(options, *p.store, clock_);
  p.dispatcher = std::make_unique<Dispatcher>(*p.runtime, kWorkerSecret,
                                              /*stuck_after=*/absl::ZeroDuration(), protocol_);
  p.archives = std::make_unique<ArchiveSigner>(*p.store->Secret("archive_signing_key"),
                                               p.runtime->checkpoint_dirs(), clock_);
  p.audit = std::make_unique<AuditLog>(*p.store, clock_);
  p.reads = std::make_unique<ReadThreads>();
  p.engine = std::make_unique<EngineService>(*p.runtime, *p.keys, *p.reads, *p.archives, *p.audit);
  p.tenants = std::make_unique<TenantsService>(*p.runtime, *p.keys, *p.reads);
  p.streaming = std::make_unique<StreamingService>(*p.runtime, *p.keys);
  p.accounts = std::make_unique<AccountsService>(
      *p.runtime, *p.keys, *p.reads,
      [dispatcher = p.dispatcher.get()] { return dispatcher->DescribeGroups(); });
  p.traces = std::make_unique<TracesService>(*p.runtime, *p.keys, *p.reads,
                                             *p.store->Secret("archive_signing_key"));
  p.metrics = std::make_unique<MetricsService>(*p.runtime, *p.keys, *p.reads);
  p.events = std::make_unique<EventsService>(
      *p.runtime, *p.keys, *p.reads,
      [dispatcher = p.dispatcher.get()] { return dispatcher->DescribeGroups(); });
  p.checkpoints =
      std::make_unique<CheckpointsService>(*p.runtime, *p.keys, *p.reads, *p.archives, *p.audit);
  p.sign_in = std::make_unique<SignInService>(*p.runtime, *p.keys, *p.reads);
  p.users = std::make_unique<UsersService>(*p.keys, *p.reads);
  p.groups = std::make_unique<GroupsService>(*p.runtime, *p.keys, *p.reads);
  p.admin = std::make_unique<AdminService>(
      *p.runtime, *p.keys, *p.reads,
      [dispatcher = p.dispatcher.get()] { return dispatcher->DescribeGroups(); });
  REQUIRE(p.runtime->Start(*p.dispatcher).ok());
  absl::StatusOr<Servers> servers = Servers::Start(
      {.run_dir = dir_.path().string(), .grpc_listen = "127.0.0.1:0"},
      {.engine = {p.engine.get(), p.tenants.get(), p.streaming.get(), p.checkpoints.get(),
                  p.accounts.get(), p.traces.get(), p.metrics.get(), p.sign_in.get(), p.users.get(),
                  p.groups.get(), p.events.get()},
       .admin = *p.admin,
       .workers = *p.dispatcher});
  INFO(servers.status());
  REQUIRE(servers.ok());
  p.servers = std::make_unique<Servers>(*std::move(servers));
  const std::string socket = "unix:" + dir_.path().string();
  tenants_stub_ = v1::Tenants::NewStub(MakeChannel(address()));
  engine_channel_ = MakeChannel(socket + "/engine.sock");
  engine_stub_ = v1::Engine::NewStub(engine_channel_);
  streaming_stub_ = v1::Streaming::NewStub(MakeChannel(address()));
  checkpoints_stub_ = v1::Checkpoints::NewStub(engine_channel_);
  accounts_stub_ = v1::Accounts::NewStub(engine_channel_);
  admin_stub_ = v1::Admin::NewStub(MakeChannel(socket + "/admin.sock"));
}

std::string TestEngine::GatewaySecret() { return GatewaySecretOf(kWorkerSecret); }

std::shared_ptr<grpc::Channel> TestEngine::DialByNetwork() const {
  return MakeChannel(absl::StrCat("127.0.0.1:", parts_->servers->grpc_port()));
}

void TestEngine::Stop() {
  if (!parts_) return;
  parts_->runtime->ReleaseWaiters();
  parts_->dispatcher->EndStreams();
  parts_->events->EndStreams();
  parts_->servers->Shutdown();
  parts_->runtime->Stop();
  // Destroy in the reverse order of construction.
  parts_->servers.reset();
  parts_->admin.reset();
  parts_->users.reset();
  parts_->sign_in.reset();
  parts_->groups.reset();
  parts_->accounts.reset();
  parts_->tenants.reset();
  parts_->streaming.reset();
  parts_->traces.reset();
  parts_->metrics.reset();
  parts_->events.reset();
  parts_->checkpoints.reset();
  parts_->engine.reset();
  parts_->reads.reset();
  parts_->dispatcher.reset();
  parts_.reset();
}

void TestEngine::Restart(size_t max_waiting_calls) {
  Stop();
  Start(max_waiting_calls);
}

std::string TestEngine::SignIn(const std::string& subject, UserRole role,
                               const std::string& tenant) {
  Identity person;
  person.issuer = "https://id.example";
  person.subject = subject;
  const absl::StatusOr<std::string> tenant_id = keys().FindOrMakeTenant(tenant);
  REQUIRE(tenant_id.ok());
  const auto session = keys().users().BeginForUser(person, role, *tenant_id, {});
  INFO(session.status());
  REQUIRE(session.ok());
  return session->text;
}

std::string TestEngine::MakeKey(const std::string& tenant, const std::vector<std::string>& scopes) {
  const absl::StatusOr<KeyRing::NewKey> key = keys().Create(tenant, "test", scopes);
  REQUIRE(key.ok());
  return key->text;
}

FakeWorker::Options TestEngine::WorkerOptions() const {
  return {.address = "unix:" + dir_.path().string() + "/worker.sock",
          .secret = kWorkerSecret,
          .checkpoints = (dir_.path() / "checkpoints").string()};
}

void TestEngine::WaitForBaseModel(const std::string& name) {
  while (!runtime().directory().FindBaseModel(name)) std::this_thread::yield();
}

CallContext::CallContext(const std::string& key) {
  context_.AddMetadata(IsUserSession(key) ? kUserSessionHeader : kApiKeyHeader, key);
  context_.set_wait_for_ready(true);
  SetDeadline(context_, absl::Seconds(60));
}

}  // namespace lathe::engine
