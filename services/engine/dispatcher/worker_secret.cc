#include "services/engine/dispatcher/worker_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/random/random_id.h"

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

}  // namespace

absl::StatusOr<std::string> LoadOrMakeSecret(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / "secret";
  const absl::Status made = WriteNew(path, RandomId(kSecretBytes));
  if (!made.ok()) return made;
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
  const std::filesystem::path path = run_dir / "secret";
  const std::filesystem::path fresh = run_dir / absl::StrCat("secret.", RandomId(kSecretBytes));
  std::string secret = Sha256Hex(key);
  const absl::Status made = WriteNew(fresh, secret);
  if (!made.ok()) return made;
  if (rename(fresh.c_str(), path.c_str()) == 0) return secret;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot replace ", path.string()));
}

}  // namespace lathe::engine
