// Client side of a gRPC connection, and the limits of both sides.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// Larger than the gateway's limit of 512 MiB for inflated bodies, so that the gateway refuses
// first.
inline constexpr int kMaxMessageBytes = 640 << 20;

// Interval at which gRPC checks the certificate files for changes.
inline constexpr unsigned int kCertificateRefreshSeconds = 1;

// PEM files of a client that connects to other machines. They are read again when they change.
// While certificate and key are being replaced, a connection attempt may fail and is repeated.
struct ChannelTls {
  std::string ca;    // CA of the server's certificate; empty: no TLS
  std::string cert;  // client certificate, sent if the server asks; empty: none
  std::string key;   // private key of `cert`

  bool enabled() const { return !ca.empty(); }
};

// Returns OK if the options are consistent, the files can be read, and no traffic to `addresses`
// crosses machines in clear text. InvalidArgument names the option. `allow_insecure` permits clear
// text.
absl::Status CheckChannelTls(const ChannelTls& tls, const std::vector<std::string>& addresses,
                             bool allow_insecure);

// Makes channels with the same credentials. Copies are equivalent.
class Dialer {
 public:
  // Uses no TLS.
  Dialer();
  explicit Dialer(const ChannelTls& tls);

  // Returns a channel to `address`, "unix:PATH" (always without TLS) or "HOST:PORT". It connects on
  // first use and reconnects without end, 100 ms to 2 s apart. Messages may have up to
  // kMaxMessageBytes both ways. Every channel has a connection of its own. Proxy variables of the
  // environment are ignored.
  std::shared_ptr<grpc::Channel> Dial(const std::string& address) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;  // credentials for HOST:PORT
};

// Equals Dialer().Dial(address).
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// Sets the deadline of a call to `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace lathe
