// Certificate files for readers that take key and certificate one after the other.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/listener/tls_files.h"

namespace lathe {

// Keeps in memory what `files` held when they could last be used together. Whoever reads them while
// they are exchanged, or when they are broken, gets the last good ones from here, and always a
// pair. Refresh and the constructor are of one thread; readers are of any.
class GoodTlsFiles {
 public:
  // Errors as LoadServerContext.
  static absl::StatusOr<std::unique_ptr<GoodTlsFiles>> Open(TlsFiles files);
  ~GoodTlsFiles();
  GoodTlsFiles(const GoodTlsFiles&) = delete;
  GoodTlsFiles& operator=(const GoodTlsFiles&) = delete;

  // Paths to read while this lives. `cert` and `key` are one file that has both.
  TlsFiles files() const;

  // Takes over the files if they have changed and can be used. An error is reported once for each
  // change. Whether there was one.
  absl::StatusOr<bool> Refresh();

 private:
  explicit GoodTlsFiles(TlsFiles files) : source_(std::move(files)) {}
  absl::Status Take();

  const TlsFiles source_;
  std::string stamp_;  // of the files last tried
  // Memory files: of certificate and key, and of the clients' authority.
  int pair_fd_ = -1;
  int client_ca_fd_ = -1;
  int num_taken_ = 0;
};

}  // namespace lathe
