// Errors of opening or reading a file.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace lathe::worker {

// Returns the status for `error`, an errno. NotFound: there is no such file. Unavailable: the
// system could not read it now (EIO, EMFILE…). That says nothing about the bytes, and a retry may
// succeed.
inline absl::Status ReadError(const std::filesystem::path& path, const char* operation, int error) {
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, std::strerror(error));
  const bool is_missing = error == ENOENT || error == ENOTDIR || error == EISDIR;
  return is_missing ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

}  // namespace lathe::worker
