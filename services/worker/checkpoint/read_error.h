// Why a file could not be opened or read.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace lathe::worker {

// `error` is an errno. NotFound: there is no such file. Unavailable: the system could not do it now
// (EIO, EMFILE…), which says nothing of the bytes; another try may.
inline absl::Status ReadError(const std::filesystem::path& path, const char* operation, int error) {
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, std::strerror(error));
  const bool is_missing = error == ENOENT || error == ENOTDIR || error == EISDIR;
  return is_missing ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

}  // namespace lathe::worker
