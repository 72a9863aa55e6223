// A folder with a private CA and the certificates that it has issued.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/lathe/certs/certificate.h"

namespace lathe::cli {

// Certificate file and the names in it. The first name is the file's.
struct CertificateRequest {
  std::string file;
  std::vector<std::string> names;
};

// Parses FILE[=NAME,NAME…]. Without a list, FILE is the name itself. Error usage if a name is no
// DNS name and no address, or if FILE is no file name.
absl::StatusOr<CertificateRequest> ParseCertificateRequest(const std::string& text);

// Bound of life, so that the CA, which lives twice as long, outlives what it issues.
inline constexpr absl::Duration kMaxCertificateLife = absl::Hours(24 * 365 * 5);

struct CertFolderOptions {
  std::filesystem::path dir;
  // Life of a new certificate. That of the CA is ten years.
  absl::Duration life = absl::Hours(24 * 365);
  // A certificate that ends within this time is replaced.
  absl::Duration renew_before = absl::Hours(24 * 30);
  absl::Time now;
};

struct CertificateState {
  std::string file;
  absl::Time end;
  bool is_new = false;
};

// DIR/ca.{crt,key} and DIR/FILE.{crt,key}, each of mode 0600. A key is written before its
// certificate, each in one step, so a listener that reads them meanwhile sees a pair that does not
// match, and keeps the last one. Holds a lock of the folder: two commands on one folder take turns.
class CertFolder {
 public:
  // Makes the folder if it is missing. Errors: cannot_create, configuration.
  static absl::StatusOr<CertFolder> Open(CertFolderOptions options);
  CertFolder(CertFolder&& other) noexcept;
  CertFolder& operator=(CertFolder&&) = delete;
  ~CertFolder();

  // Makes the CA if there is none. Renews its certificate with the same key before it could end
  // earlier than one that it issues; certificates that it has issued stay valid.
  absl::StatusOr<CertificateState> EnsureAuthority();

  // Keeps the certificate if it is the CA's, has exactly these names and its key, and does not end
  // soon. Otherwise issues one with a new key. EnsureAuthority must have succeeded. Error
  // configuration if one is needed and the CA's key is not there.
  absl::StatusOr<CertificateState> Ensure(const CertificateRequest& request);

  // Returns the requests that made the certificates of the folder, by file.
  absl::StatusOr<std::vector<CertificateRequest>> Requests() const;

 private:
  CertFolder(CertFolderOptions options, int lock_fd)
      : options_(std::move(options)), lock_fd_(lock_fd) {}

  std::filesystem::path CertPath(const std::string& file) const;
  std::filesystem::path KeyPath(const std::string& file) const;
  absl::Status Write(const std::string& file, EVP_PKEY* key, X509* certificate) const;
  bool IsGood(const CertificateRequest& request, absl::Time& end) const;

  const CertFolderOptions options_;
  int lock_fd_;
  CertificatePtr authority_;
  KeyPtr authority_key_;
};

}  // namespace lathe::cli
