#include "libs/common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr char kUnix[] = "unix:";

std::shared_ptr<grpc::ChannelCredentials> CredentialsFor(const ChannelTls& tls) {
  if (!tls.enabled()) return grpc::InsecureChannelCredentials();
  namespace tls_api = grpc::experimental;
  tls_api::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls_api::FileWatcherCertificateProvider>(
      tls.key, tls.cert, tls.ca, kCertificateRefreshSeconds));
  options.watch_root_certs();
  if (!tls.cert.empty()) options.watch_identity_key_cert_pairs();
  return tls_api::TlsCredentials(options);
}

absl::Status Bad(const char* option, const std::string& why) {
  return WithDetail(absl::InvalidArgumentError(absl::StrCat(option, " ", why)), "configuration",
                    option);
}

absl::Status CheckReadable(const char* option, const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return Bad(option, absl::StrFormat("'%s' cannot be read", path));
}

}  // namespace

absl::Status CheckChannelTls(const ChannelTls& tls, const std::vector<std::string>& addresses,
                             bool allow_insecure) {
  if (!tls.enabled()) {
    if (!tls.cert.empty() || !tls.key.empty()) {
      return Bad("engine_ca", "is empty, a certificate of our own is given");
    }
    for (const std::string& address : addresses) {
      if (IsLoopback(address) || allow_insecure) continue;
      return Bad("engine_ca",
                 absl::StrFormat("is empty and engine '%s' is another machine: traffic would be "
                                 "unencrypted; --insecure-i-know allows it",
                                 address));
    }
    return absl::OkStatus();
  }
  if (tls.cert.empty() != tls.key.empty()) {
    return Bad(tls.cert.empty() ? "engine_cert" : "engine_key", "is missing: both or none");
  }
  RETURN_IF_ERROR(CheckReadable("engine_ca", tls.ca));
  RETURN_IF_ERROR(CheckReadable("engine_cert", tls.cert));
  return CheckReadable("engine_key", tls.key);
}

Dialer::Dialer() : Dialer(ChannelTls()) {}

Dialer::Dialer(const ChannelTls& tls) : credentials_(CredentialsFor(tls)) {}

std::shared_ptr<grpc::Channel> Dialer::Dial(const std::string& address) const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Detects within 15 s a peer that vanished without closing, also on an idle stream.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Channels to one address would otherwise share one connection and its flow control.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const bool is_local = absl::StartsWith(address, kUnix);
  return grpc::CreateCustomChannel(
      address, is_local ? grpc::InsecureChannelCredentials() : credentials_, arguments);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  return Dialer().Dial(address);
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

}  // namespace lathe
