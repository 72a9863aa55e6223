// Errors of opening or reading a file.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace lathe::worker {

// Returns the status for `error`, an errno. NotFound: there is no such file. Unavailable: this
// process or machine is short of something (EMFILE, ENOMEM…), which says nothing about the file.
// Internal: the disk or the rights of the file (EIO, EACCES…). A retry may succeed, but need not.
inline absl::Status ReadError(const std::filesystem::path& path, const char* operation, int error) {
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
      return absl::NotFoundError(message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case EINTR:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

// Returns true if ReadError found no fault of the bytes.
inline bool IsReadError(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsInternal(status);
}

}  // namespace lathe::worker
