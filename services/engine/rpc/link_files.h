// The same files in a second directory.
#pragma once

#include <filesystem>

#include <string>

#include "absl/status/status.h"

namespace lathe::engine {

// Makes `to`, a directory beside `from`, with hard links to its plain files: they never change, so
// both names may share them, and the bytes live until both are gone. Copies where the file system
// has no links. The manifest still names what was copied, so `to` also has a file kCopyNameFile
// that says `tinker_path`. Durable on success; `to` is removed on failure. NotFound: `from` is
// gone.
absl::Status LinkFiles(const std::filesystem::path& from, const std::filesystem::path& to,
                       const std::string& tinker_path);

}  // namespace lathe::engine
