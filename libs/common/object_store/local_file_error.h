// Errors of files of this machine, which say nothing about an object.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lathe {

// Returns the status of `error`, an errno: ResourceExhausted if the disk is full, otherwise
// Unavailable. It is never NotFound or DataLoss, which would speak about the object.
inline absl::Status LocalFileError(const std::filesystem::path& path, const char* what, int error) {
  const std::string message =
      absl::StrCat(path.string(), ": cannot ", what, " it here: ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(message + "; free some room, or raise the quota");
  }
  return absl::UnavailableError(message);
}

}  // namespace lathe
