#include "services/engine/dispatcher/worker_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/random/random_id.h"
#include "libs/common/rpc/cluster_secret.h"

namespace lathe::engine {
namespace {

constexpr size_t kSecretBytes = 32;

absl::Status WriteNew(const std::filesystem::path& path, const std::string& secret) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  // Another process may have created it meanwhile; its secret is used.
  if (fd < 0 && errno == EEXIST) return absl::OkStatus();
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path.string()));
  const bool is_written =
      write(fd, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  close(fd);
  if (is_written) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path.string()));
}

absl::Status Replace(const std::filesystem::path& path, const std::string& secret) {
  std::filesystem::path fresh = path;
  fresh += "." + RandomId(kSecretBytes);
  const absl::Status made = WriteNew(fresh, secret);
  if (!made.ok()) return made;
  if (rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot replace ", path.string()));
}

}  // namespace

absl::StatusOr<std::string> LoadSecret(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / kWorkerSecretFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path.string(), " does not exist"));
  }
  std::ifstream file(path);
  std::string secret;
  std::getline(file, secret);
  if (secret.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("'%s' is empty or cannot be read", path.string()));
  }
  return secret;
}

absl::StatusOr<std::string> ShareSecret(const std::filesystem::path& run_dir,
                                        const std::string& key) {
  std::string secret = Sha256Hex(key);
  const absl::Status status = WriteWorkerSecret(run_dir, secret);
  if (!status.ok()) return status;
  return secret;
}

absl::Status WriteWorkerSecret(const std::filesystem::path& run_dir, const std::string& secret) {
  return Replace(run_dir / kWorkerSecretFile, secret);
}

absl::Status WriteGatewaySecret(const std::filesystem::path& run_dir, const std::string& secret) {
  return Replace(run_dir / kGatewaySecretFile, secret);
}

}  // namespace lathe::engine
