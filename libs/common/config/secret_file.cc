#include "libs/common/config/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lathe {
namespace {

absl::Status Refuse(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("'", path, "' ", why));
}

absl::Status Unreadable(const std::string& path, int error) {
  const std::string why = absl::StrCat("cannot be read: ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(absl::StrCat("'", path, "' ", why));
  return Refuse(path, why);
}

// Reads up to `max_bytes` + 1 bytes.
absl::StatusOr<std::string> ReadUpTo(const std::string& path, int max_bytes) {
  // A fifo without a writer must not hold up the start.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Unreadable(path, errno);
  std::string text(static_cast<std::size_t>(max_bytes) + 1, '\0');
  std::size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() && (got = read(fd, &text[size], text.size() - size)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    size += static_cast<std::size_t>(got);
  }
  const int error = errno;
  close(fd);
  if (got < 0) return Unreadable(path, error);
  text.resize(size);
  return text;
}

}  // namespace

absl::StatusOr<std::string> LoadSecretFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadUpTo(path, kMaxSecretBytes);
  if (!text.ok()) return text;
  if (text->size() > static_cast<std::size_t>(kMaxSecretBytes)) {
    return Refuse(path, absl::StrCat("has more than ", kMaxSecretBytes, " bytes"));
  }
  absl::StripAsciiWhitespace(&*text);
  if (text->empty()) return Refuse(path, "is empty");
  if (text->find('\n') != std::string::npos || text->find('\0') != std::string::npos) {
    return Refuse(path, "has more than one line");
  }
  return text;
}

}  // namespace lathe
