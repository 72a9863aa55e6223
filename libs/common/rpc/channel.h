// Client side of a gRPC connection.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/rpc/limits.h"

namespace lathe {

// PEM files of who dials other machines. They are read again when they change; between two steps of
// an exchange of certificate and key a connection may fail, and is tried again.
struct ChannelTls {
  std::string ca;    // the server's certificate is one that this has signed; empty: no TLS
  std::string cert;  // shown when the server asks for one; empty: none
  std::string key;   // its private key

  bool enabled() const { return !ca.empty(); }
};

// Whether the options belong together, the files can be read, and with `addresses` nothing travels
// in the clear between machines; InvalidArgument names the option. `allow_insecure`: it may.
absl::Status CheckChannelTls(const ChannelTls& tls, const std::vector<std::string>& addresses,
                             bool allow_insecure);

// Makes channels of one kind. Copies are the same.
class Dialer {
 public:
  // In the clear.
  Dialer();
  explicit Dialer(const ChannelTls& tls);

  // A channel to `address`, "unix:PATH" (always without TLS) or "HOST:PORT". Connects when first
  // used and again for ever, between 100 ms and 2 s apart; messages up to kMaxMessageBytes both
  // ways. Every call makes a connection of its own. Proxies of the environment are ignored.
  std::shared_ptr<grpc::Channel> Dial(const std::string& address) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;  // of HOST:PORT
};

// As Dialer().Dial(address).
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// Gives a call `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace lathe
