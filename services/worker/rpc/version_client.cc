#include "services/worker/rpc/version_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/worker/rpc/train_conversion.h"

namespace lathe::worker {
namespace {

// Limit for a chunk with its header.
constexpr int kMaxChunkBytes = 2 << 20;

// Each read has its own connection, which detects a dead server early, because samples wait for it.
std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxChunkBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

VersionHeader ToHeader(const lathe::v1::VersionHeader& proto) {
  return {.base_content_hash = proto.base_content_hash(),
          .lora = ToLoraSpec(proto.lora()),
          .num_bytes = proto.num_bytes(),
          .model_id = proto.model_id(),
          .seq_id = proto.seq_id(),
          .applied_seq = proto.applied_seq()};
}

// Copies chunks to their places and checks the size and the checksum.
class Assembly {
 public:
  explicit Assembly(const VersionReader::Begin& begin) : begin_(begin) {}

  absl::Status Add(const lathe::v1::VersionChunk& chunk) {
    if (chunk.has_header() && data_ == nullptr) {
      num_bytes_ = chunk.header().num_bytes();
      ASSIGN_OR_RETURN(data_, begin_(ToHeader(chunk.header())));
    }
    const auto size = static_cast<int64_t>(chunk.data().size());
    if (data_ == nullptr || size > num_bytes_ - num_received_) {
      return absl::DataLossError("a sampler version came without a header, or longer than it says");
    }
    std::memcpy(static_cast<char*>(data_) + num_received_, chunk.data().data(),
                chunk.data().size());
    digest_.Update(chunk.data());
    num_received_ += size;
    if (!chunk.sha256().empty()) sha256_ = chunk.sha256();
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (num_received_ != num_bytes_ || data_ == nullptr) {
      return absl::DataLossError(absl::StrFormat("a sampler version of %d bytes ended after %d",
                                                 num_bytes_, num_received_));
    }
    if (digest_.FinishHex() == sha256_) return absl::OkStatus();
    return absl::DataLossError(
        "a sampler version came with another checksum than it was sent with");
  }

 private:
  const VersionReader::Begin& begin_;
  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
  int64_t num_received_ = 0;
  Sha256 digest_;
  std::string sha256_;
};

}  // namespace

bool VersionClient::Enter(grpc::ClientContext& context) {
  absl::MutexLock lock(&mu_);
  if (!stopped_) reads_.insert(&context);
  return !stopped_;
}

void VersionClient::Leave(grpc::ClientContext& context) {
  absl::MutexLock lock(&mu_);
  reads_.erase(&context);
}

void VersionClient::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  for (grpc::ClientContext* const context : reads_) context->TryCancel();
}

absl::Status VersionClient::Read(const VersionAddress& source, const std::string& version_id,
                                 int64_t seq_id, const Begin& begin) {
  if (source.address.empty()) {
    return absl::UnavailableError("the process that had the sampler version is gone");
  }
  grpc::ClientContext context;
  SetDeadline(context, timeout_);
  if (!Enter(context)) return absl::CancelledError("the process ends");
  const absl::Cleanup leave = [&] { Leave(context); };
  lathe::v1::ReadVersionRequest request;
  request.set_version_id(version_id);
  request.set_seq_id(seq_id);
  request.set_token(source.token);
  const auto stub = lathe::v1::VersionSource::NewStub(Dial(source.address));
  const auto reader = stub->ReadVersion(&context, request);
  Assembly assembly(begin);
  absl::Status status;
  lathe::v1::VersionChunk chunk;
  while (status.ok() && reader->Read(&chunk)) status = assembly.Add(chunk);
  if (!status.ok()) context.TryCancel();
  const absl::Status ended = FromGrpcStatus(reader->Finish());
  if (!status.ok()) return status;
  if (!ended.ok()) {
    return absl::Status(
        ended.code(), absl::StrCat("sampler version from ", source.address, ": ", ended.message()));
  }
  return assembly.Finish();
}

}  // namespace lathe::worker
