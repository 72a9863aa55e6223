#include "libs/common/listener/validated_tls_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

std::string PathOf(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// Returns "" when the file cannot be read; the validation that follows reports that.
std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Creates a file without a name that exists as long as its descriptors.
absl::StatusOr<int> MemoryFile(const std::string& text, int64_t changed_at) {
  const int fd = memfd_create("lathe-tls", MFD_CLOEXEC);
  const timespec time = {.tv_sec = changed_at, .tv_nsec = 0};
  const timespec times[] = {time, time};
  if (fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      futimens(fd, times) == 0) {
    return fd;
  }
  const std::string why = std::strerror(errno);
  if (fd >= 0) close(fd);
  return absl::UnavailableError("cannot keep the TLS files in memory: " + why);
}

// Makes `*place` refer to the file of `fd`. Readers see the change at once.
void Exchange(int fd, int* place) {
  if (*place < 0) {
    *place = fd;
    return;
  }
  dup3(fd, *place, O_CLOEXEC);
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ValidatedTlsFiles>> ValidatedTlsFiles::Open(TlsFiles files) {
  std::unique_ptr<ValidatedTlsFiles> validated(new ValidatedTlsFiles(std::move(files)));
  validated->stamp_ = StampOf(validated->source_);
  // Its error names the option and the file that cannot be used.
  RETURN_IF_ERROR(LoadServerContext(validated->source_).status());
  RETURN_IF_ERROR(validated->Take());
  return validated;
}

ValidatedTlsFiles::~ValidatedTlsFiles() {
  if (pair_fd_ >= 0) close(pair_fd_);
  if (client_ca_fd_ >= 0) close(client_ca_fd_);
}

TlsFiles ValidatedTlsFiles::files() const {
  return {.cert = PathOf(pair_fd_),
          .key = PathOf(pair_fd_),
          .client_ca = source_.client_ca.empty() ? "" : PathOf(client_ca_fd_)};
}

absl::StatusOr<bool> ValidatedTlsFiles::Refresh() {
  std::string stamp = StampOf(source_);
  if (stamp == stamp_) return false;
  stamp_ = std::move(stamp);
  RETURN_IF_ERROR(LoadServerContext(source_).status());
  RETURN_IF_ERROR(Take());
  return true;
}

// Validates the copies that it has read, because the source files may change between two reads.
absl::Status ValidatedTlsFiles::Take() {
  // Readers detect a change by the file's time, which has a resolution of a second.
  const int64_t changed_at = ++num_taken_;
  ASSIGN_OR_RETURN(
      const int pair,
      MemoryFile(absl::StrCat(ReadAll(source_.cert), "\n", ReadAll(source_.key)), changed_at));
  absl::Cleanup close_pair = [pair] { close(pair); };
  int client_ca = -1;
  if (!source_.client_ca.empty()) {
    ASSIGN_OR_RETURN(client_ca, MemoryFile(ReadAll(source_.client_ca), changed_at));
  }
  absl::Cleanup close_client_ca = [client_ca] { close(client_ca); };
  RETURN_IF_ERROR(LoadServerContext({.cert = PathOf(pair),
                                     .key = PathOf(pair),
                                     .client_ca = client_ca < 0 ? "" : PathOf(client_ca)})
                      .status());
  std::move(close_pair).Cancel();
  std::move(close_client_ca).Cancel();
  Exchange(pair, &pair_fd_);
  if (client_ca >= 0) Exchange(client_ca, &client_ca_fd_);
  return absl::OkStatus();
}

}  // namespace lathe
