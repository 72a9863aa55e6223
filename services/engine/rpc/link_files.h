// Copies of checkpoint directories by hard links.
#pragma once

#include <filesystem>

#include <string>

#include "absl/status/status.h"

namespace lathe::engine {

// Creates the directory `to` beside `from`, with hard links to its plain files. Sharing is safe
// because the files never change. Copies the files if the file system has no links. The manifest
// still names the source, so `to` also gets a file kCopyNameFile with `tinker_path`. Durable on
// success; `to` is removed on failure. NotFound: `from` is missing.
absl::Status LinkFiles(const std::filesystem::path& from, const std::filesystem::path& to,
                       const std::string& tinker_path);

}  // namespace lathe::engine
