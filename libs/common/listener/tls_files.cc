#include "libs/common/listener/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe {
namespace {

// Returns the reason of OpenSSL's last failure. Clears its error queue.
std::string LastReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

absl::Status BadFile(const char* option, const std::string& path) {
  return WithDetail(absl::InvalidArgumentError(
                        absl::StrFormat("%s '%s' cannot be used: %s", option, path, LastReason())),
                    "configuration", option);
}

absl::Status Incomplete(const char* given, const char* missing) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("%s is given and %s is not", given, missing)),
      "configuration", missing);
}

absl::Status RequireClientCertificate(SSL_CTX* context, const std::string& client_ca) {
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(client_ca.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(context, client_ca.c_str()) != 1) {
    sk_X509_NAME_pop_free(names, X509_NAME_free);
    return BadFile("tls_client_ca", client_ca);
  }
  SSL_CTX_set_client_CA_list(context, names);  // takes ownership
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Resumption is off: a resumed session shows no certificate, so it would survive a change of the
  // CA.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  return absl::OkStatus();
}

}  // namespace

void SslContextDeleter::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

absl::StatusOr<SslContextPtr> LoadServerContext(const TlsFiles& files) {
  if (files.key.empty()) return Incomplete("tls_cert", "tls_key");
  SslContextPtr context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return absl::InternalError(LastReason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()) != 1) {
    return BadFile("tls_cert", files.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH) {
      ERR_clear_error();
      return WithDetail(absl::FailedPreconditionError(absl::StrFormat(
                            "tls_key '%s' is not the key of tls_cert '%s'", files.key, files.cert)),
                        "configuration", "tls_key");
    }
    return BadFile("tls_key", files.key);
  }
  if (!files.client_ca.empty()) {
    const absl::Status status = RequireClientCertificate(context.get(), files.client_ca);
    if (!status.ok()) return status;
  }
  return context;
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.enabled()) return LoadServerContext(files).status();
  if (!files.key.empty()) return Incomplete("tls_key", "tls_cert");
  if (!files.client_ca.empty()) return Incomplete("tls_client_ca", "tls_cert");
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> EarliestEnd(const std::string& path) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(path.c_str(), "r"), BIO_free);
  absl::Time earliest = absl::InfiniteFuture();
  while (file != nullptr) {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
    tm end = {};
    if (certificate == nullptr) break;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) break;
    earliest = std::min(earliest, absl::FromTM(end, absl::UTCTimeZone()));
  }
  ERR_clear_error();
  if (earliest != absl::InfiniteFuture()) return earliest;
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' has no certificate that can be read", path));
}

std::string StampOf(const TlsFiles& files) {
  std::string stamp;
  for (const std::string& path : {files.cert, files.key, files.client_ca}) {
    struct stat status {};
    if (path.empty() || stat(path.c_str(), &status) != 0) {
      stamp += "none;";
      continue;
    }
    absl::StrAppendFormat(&stamp, "%d:%d:%d:%d.%09d;", status.st_dev, status.st_ino, status.st_size,
                          status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return stamp;
}

}  // namespace lathe
