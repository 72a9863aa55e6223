// The certificate files of a listener.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe {

struct TlsFiles {
  // PEM: the server's certificate, then those that link it to its root. Empty: no TLS.
  std::string cert;
  // PEM: its private key, without a pass phrase.
  std::string key;
  // PEM: clients must show a certificate that one of these has signed. Empty: none is asked for.
  std::string client_ca;

  bool enabled() const { return !cert.empty(); }
};

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const;
};
using SslContextPtr = std::unique_ptr<SSL_CTX, SslContextDeleter>;

// A server's context, TLS 1.2 or later, from the files as they are now. InvalidArgument names the
// file that cannot be used and why; FailedPrecondition: key and certificate belong to different
// pairs, as between two steps of an exchange of the files.
absl::StatusOr<SslContextPtr> LoadServerContext(const TlsFiles& files);

// Whether the options belong together and the files can be used; OK without TLS.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Differs when one of the files was exchanged or written.
std::string StampOf(const TlsFiles& files);

}  // namespace lathe
