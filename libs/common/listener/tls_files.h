// The certificate files of a listener.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe {

struct TlsFiles {
  // PEM file: the server's certificate, then those that link it to its root. Empty: no TLS.
  std::string cert;
  // PEM file: the server's private key, without a pass phrase.
  std::string key;
  // PEM file of CAs: clients must show a certificate that one of them signed. Empty: none is
  // required.
  std::string client_ca;

  bool enabled() const { return !cert.empty(); }
};

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const;
};
using SslContextPtr = std::unique_ptr<SSL_CTX, SslContextDeleter>;

// Makes a server context, TLS 1.2 or later, from the current files. Returns InvalidArgument, naming
// the file and the reason, for a file that cannot be used. Returns FailedPrecondition when key and
// certificate do not match, as in the middle of a replacement of the files.
absl::StatusOr<SslContextPtr> LoadServerContext(const TlsFiles& files);

// Returns OK if the options are consistent and the files can be used, or without TLS.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Returns when the first certificate of a PEM file ends. InvalidArgument: the file has none, or
// cannot be read.
absl::StatusOr<absl::Time> EarliestEnd(const std::string& path);

// Returns a stamp that changes when one of the files is replaced or written.
std::string StampOf(const TlsFiles& files);

}  // namespace lathe
