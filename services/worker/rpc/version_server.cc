#include "services/worker/rpc/version_server.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/random/random_id.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"
#include "services/worker/rpc/train_conversion.h"

namespace lathe::worker {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

}  // namespace

// One read. Deletes itself when gRPC is done with it.
class VersionServer::Call final : public grpc::ServerWriteReactor<lathe::v1::VersionChunk> {
 public:
  Call(VersionServer& server, std::shared_ptr<const ServedVersion> version)
      : server_(server), version_(std::move(version)) {
    const VersionHeader& header = version_->header;
    lathe::v1::VersionHeader* const proto = chunk_.mutable_header();
    proto->set_base_content_hash(header.base_content_hash);
    *proto->mutable_lora() = ToProto(header.lora);
    proto->set_num_bytes(header.num_bytes);
    proto->set_model_id(header.model_id);
    proto->set_seq_id(header.seq_id);
    proto->set_applied_seq(header.applied_seq);
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader left"));
    if (is_last_) return Finish(grpc::Status::OK);
    chunk_.clear_header();
    WriteNext();
  }

  void OnDone() override {
    --server_.num_reads_;
    delete this;
  }

 private:
  void WriteNext() {
    FailPoint("worker.version.chunk");
    const int64_t num_bytes = std::min(kChunkBytes, version_->header.num_bytes - sent_);
    const char* const data = static_cast<const char*>(version_->data) + sent_;
    chunk_.set_data(data, static_cast<size_t>(num_bytes));
    digest_.Update({data, static_cast<size_t>(num_bytes)});
    sent_ += num_bytes;
    is_last_ = sent_ == version_->header.num_bytes;
    if (is_last_) chunk_.set_sha256(digest_.FinishHex());
    StartWrite(&chunk_);
  }

  VersionServer& server_;
  const std::shared_ptr<const ServedVersion> version_;
  lathe::v1::VersionChunk chunk_;
  Sha256 digest_;
  int64_t sent_ = 0;
  bool is_last_ = false;
};

namespace {

// A call that ends at once with an error.
class Refusal final : public grpc::ServerWriteReactor<lathe::v1::VersionChunk> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

VersionServer::VersionServer(ServedVersions& versions) : versions_(versions) {}

absl::StatusOr<std::unique_ptr<VersionServer>> VersionServer::Start(const std::string& host,
                                                                    ServedVersions& versions) {
  std::unique_ptr<VersionServer> started(new VersionServer(versions));
  const std::string numeric = absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host;
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  int port = 0;
  AddListener(builder, absl::StrCat(numeric, ":0"), &port);
  builder.RegisterService(started.get());
  started->server_ = builder.BuildAndStart();
  if (started->server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("sampler versions cannot be served at ", host));
  }
  started->address_ = {.address = absl::StrCat(numeric, ":", port), .token = RandomId(32)};
  return started;
}

VersionServer::~VersionServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

absl::StatusOr<std::shared_ptr<const ServedVersion>> VersionServer::Admit(
    const lathe::v1::ReadVersionRequest& request) {
  if (!EqualInConstantTime(request.token(), address_.token)) {
    return absl::PermissionDeniedError("the token is not that of this process");
  }
  if (++num_reads_ > kMaxReads) {
    --num_reads_;
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxReads, " reads of sampler versions are under way, which is the limit"));
  }
  absl::StatusOr<std::shared_ptr<const ServedVersion>> version =
      versions_.Take(request.version_id(), request.seq_id());
  if (!version.ok()) --num_reads_;
  return version;
}

grpc::ServerWriteReactor<lathe::v1::VersionChunk>* VersionServer::ReadVersion(
    grpc::CallbackServerContext*, const lathe::v1::ReadVersionRequest* request) {
  absl::StatusOr<std::shared_ptr<const ServedVersion>> version = Admit(*request);
  if (!version.ok()) return new Refusal(version.status());
  return new Call(*this, *std::move(version));
}

}  // namespace lathe::worker
