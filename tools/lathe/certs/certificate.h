// Keys and certificates in memory. The only user of OpenSSL's X.509 functions in the CLI.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::cli {

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const;
};
struct CertificateDeleter {
  void operator()(X509* certificate) const;
};
using KeyPtr = std::unique_ptr<EVP_PKEY, KeyDeleter>;
using CertificatePtr = std::unique_ptr<X509, CertificateDeleter>;

// Returns a new key on the curve P-256.
absl::StatusOr<KeyPtr> MakeKey();

// PEM without a pass phrase. The readers return InvalidArgument with the reason.
absl::StatusOr<std::string> ToPem(EVP_PKEY* key);
absl::StatusOr<std::string> ToPem(X509* certificate);
absl::StatusOr<KeyPtr> ReadKey(const std::string& pem);
absl::StatusOr<CertificatePtr> ReadCertificate(const std::string& pem);

// Returns an address in its usual form and a DNS name in lower case. InvalidArgument if `name` is
// neither. The first of three or more labels may be `*`: clients refuse a wildcard with fewer.
absl::StatusOr<std::string> NormalName(const std::string& name);

// Makes a certificate of an authority, signed with its own key.
absl::StatusOr<CertificatePtr> MakeAuthority(EVP_PKEY* key, absl::Time now, absl::Duration life);

// Names an authority and its key, which signs.
struct Issuer {
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
};

// Makes a certificate of `key` for servers and clients called `names`, which are normal and not
// empty. The first one is also the subject.
absl::StatusOr<CertificatePtr> Issue(const Issuer& issuer, EVP_PKEY* key,
                                     const std::vector<std::string>& names, absl::Time now,
                                     absl::Duration life);

// Returns the names for which `certificate` was issued, in their order.
std::vector<std::string> NamesOf(X509* certificate);
absl::Time EndOf(X509* certificate);
bool IsKeyOf(X509* certificate, EVP_PKEY* key);
bool IsSignedBy(X509* certificate, X509* authority);

}  // namespace lathe::cli
