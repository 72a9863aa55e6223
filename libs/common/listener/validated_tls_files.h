// Validated certificate files, for readers that load key and certificate separately.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/listener/tls_files.h"

namespace lathe {

// Keeps in memory the contents of `files` that last passed validation. Readers use these copies
// while the source files are being replaced or are broken, and always get a matching pair. One
// thread calls the constructor and Refresh; any thread may read.
class ValidatedTlsFiles {
 public:
  // Returns the errors of LoadServerContext.
  static absl::StatusOr<std::unique_ptr<ValidatedTlsFiles>> Open(TlsFiles files);
  ~ValidatedTlsFiles();
  ValidatedTlsFiles(const ValidatedTlsFiles&) = delete;
  ValidatedTlsFiles& operator=(const ValidatedTlsFiles&) = delete;

  // Returns paths that are valid while this object lives. `cert` and `key` are one file with both.
  TlsFiles files() const;

  // Loads the files if they have changed and are valid. Reports an error once for each change.
  // Returns true if it loaded new files.
  absl::StatusOr<bool> Refresh();

 private:
  explicit ValidatedTlsFiles(TlsFiles files) : source_(std::move(files)) {}
  absl::Status Take();

  const TlsFiles source_;
  std::string stamp_;  // stamp of the files at the last attempt
  // Descriptors of memory files: certificate and key, and the clients' CA.
  int pair_fd_ = -1;
  int client_ca_fd_ = -1;
  int num_taken_ = 0;
};

}  // namespace lathe
