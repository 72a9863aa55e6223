#include "libs/common/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/listener/validated_tls_files.h"
#include "libs/common/logging/logging.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr absl::Duration kFilesPeriod = absl::Milliseconds(500);

class AcceptVerifiedChain final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest*,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    *status = grpc::Status::OK;
    return true;  // the result is immediate
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}
};

std::shared_ptr<grpc::ServerCredentials> CredentialsFor(const TlsFiles& tls) {
  namespace tls_api = grpc::experimental;
  tls_api::TlsServerCredentialsOptions options(
      std::make_shared<tls_api::FileWatcherCertificateProvider>(tls.key, tls.cert, tls.client_ca,
                                                                kCertificateRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (!tls.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    // gRPC has verified the chain by then. A client's host name proves nothing.
    options.set_certificate_verifier(
        tls_api::ExternalCertificateVerifier::Create<AcceptVerifiedChain>());
  }
  return tls_api::TlsServerCredentials(options);
}

void RefreshFiles(ValidatedTlsFiles& files) {
  const absl::StatusOr<bool> is_new = files.Refresh();
  if (!is_new.ok()) {
    LogWarn("tls files cannot be used, the last ones stay in use",
            {{"error", is_new.status().message()}});
  } else if (*is_new) {
    LogInfo("tls certificate loaded");
  }
}

void AddPort(grpc::ServerBuilder& builder, const std::string& address, int* port,
             std::shared_ptr<grpc::ServerCredentials> credentials) {
  constexpr char kUnixScheme[] = "unix:";
  if (address.starts_with(kUnixScheme)) unlink(address.c_str() + sizeof(kUnixScheme) - 1);
  builder.AddListeningPort(address, std::move(credentials), port);
}

}  // namespace

// Passes validated files to gRPC. gRPC's own watcher reads key and certificate separately and would
// accept a pair that does not match.
class TlsWatch {
 public:
  explicit TlsWatch(std::unique_ptr<ValidatedTlsFiles> files)
      : files_(std::move(files)),
        task_("tls-files", kFilesPeriod, [this] { RefreshFiles(*files_); }) {}

 private:
  const std::unique_ptr<ValidatedTlsFiles> files_;
  PeriodicTask task_;
};

void TlsWatchDeleter::operator()(TlsWatch* watch) const { delete watch; }

void ApplyServerDefaults(grpc::ServerBuilder& builder) {
  // A message that gRPC inflates could be a thousand times as large as what was sent.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  grpc::EnableDefaultHealthCheckService(true);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The clients' pings, every 10 s, must not count as abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

void AddListener(grpc::ServerBuilder& builder, const std::string& address, int* port) {
  AddPort(builder, address, port, grpc::InsecureServerCredentials());
}

absl::StatusOr<TlsWatchPtr> AddTlsListener(grpc::ServerBuilder& builder, const std::string& address,
                                           int* port, const TlsFiles& tls) {
  ASSIGN_OR_RETURN(std::unique_ptr<ValidatedTlsFiles> files, ValidatedTlsFiles::Open(tls));
  AddPort(builder, address, port, CredentialsFor(files->files()));
  return TlsWatchPtr(new TlsWatch(std::move(files)));
}

}  // namespace lathe
