// A fake engine with keys and a status, but without requests. It serves Admin on run/admin.sock and
// Authenticate on run/engine.sock. Files in DIR control it:
//   fake_keys/KEY            the keys, with one scope per line
//   fake_worker_ready        group `default` is ready if this exists
//   fake_worker_ready-GROUP  adds a group that is ready
//   fake_unsaved             holds the id of the unsaved model that Drain reports
#include <grpcpp/server.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "libs/common/random/random_id.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"
#include "libs/common/version.h"
#include "protos/lathe/v1/admin.grpc.pb.h"
#include "protos/lathe/v1/engine.grpc.pb.h"
#include "tools/lathe/data_dir.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

const std::string kReadyGroup = "fake_worker_ready-";

class FakeAdmin : public v1::Admin::Service {
 public:
  explicit FakeAdmin(fs::path dir) : dir_(std::move(dir)) {}

  grpc::Status CreateKey(grpc::ServerContext*, const v1::CreateKeyRequest* request,
                         v1::CreateKeyResponse* response) override {
    response->set_key_id(RandomId(4));
    response->set_api_key("tml-" + response->key_id());
    fs::create_directories(dir_ / "fake_keys");
    std::ofstream file(dir_ / "fake_keys" / response->api_key());
    for (const std::string& scope : request->scopes()) file << scope << "\n";
    return grpc::Status::OK;
  }

  grpc::Status ListKeys(grpc::ServerContext*, const v1::ListKeysRequest*,
                        v1::ListKeysResponse* response) override {
    for (const auto& entry : fs::directory_iterator(dir_ / "fake_keys")) {
      response->add_keys()->set_key_id(entry.path().filename().string().substr(4));
    }
    return grpc::Status::OK;
  }

  grpc::Status RevokeKey(grpc::ServerContext*, const v1::RevokeKeyRequest* request,
                         v1::RevokeKeyResponse*) override {
    if (fs::remove(dir_ / "fake_keys" / ("tml-" + request->key_id()))) return grpc::Status::OK;
    return ToGrpcStatus(absl::NotFoundError("no key " + request->key_id()));
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_version(std::string(kVersion));
    v1::GroupStatus* group = response->add_groups();
    group->set_group("default");
    const bool is_ready = fs::exists(dir_ / "fake_worker_ready");
    group->set_state(is_ready ? "ready" : "loading");
    if (!is_ready) group->set_progress("64 % of 1.2 GB");
    for (const auto& entry : fs::directory_iterator(dir_)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kReadyGroup)) continue;
      v1::GroupStatus* const other = response->add_groups();
      other->set_group(name.substr(kReadyGroup.size()));
      other->set_state("ready");
    }
    return grpc::Status::OK;
  }

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*,
                     v1::DrainResponse* response) override {
    const auto unsaved = ReadTextFile(dir_ / "fake_unsaved");
    if (unsaved.ok()) response->add_unsaved_model_ids(*unsaved);
    return grpc::Status::OK;
  }

 private:
  const fs::path dir_;
};

class FakeEngine : public v1::Engine::Service {
 public:
  explicit FakeEngine(fs::path dir) : dir_(std::move(dir)) {}

  grpc::Status Authenticate(grpc::ServerContext* context, const v1::AuthenticateRequest*,
                            v1::AuthenticateResponse* response) override {
    const auto& metadata = context->client_metadata();
    const auto key = metadata.find("x-api-key");
    const std::string name =
        key == metadata.end() ? "" : std::string(key->second.data(), key->second.size());
    std::ifstream file(dir_ / "fake_keys" / name);
    if (name.empty() || !file) return ToGrpcStatus(absl::UnauthenticatedError("unknown key"));
    for (std::string scope; std::getline(file, scope);) response->add_scopes(scope);
    return grpc::Status::OK;
  }

 private:
  const fs::path dir_;
};

// Serves until SIGTERM.
int Serve(const DataDir& dir) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  FakeAdmin admin(dir.path());
  FakeEngine engine(dir.path());
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  AddListener(builder, dir.SocketAddress("admin"));
  AddListener(builder, dir.SocketAddress("engine"));
  builder.RegisterService(&admin);
  builder.RegisterService(&engine);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 69;
  int signal;
  sigwait(&stop, &signal);
  server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) {
  std::string dir;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--data-dir") dir = argv[i + 1];
  }
  return lathe::cli::Serve(lathe::cli::DataDir(dir));
}
