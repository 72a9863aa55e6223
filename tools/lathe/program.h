// The other programs of Lathe.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::cli {

// The folder of this program.
std::filesystem::path ProgramDir();

// Path of program `name` in `dir`. NotFound `configuration` when it is missing there.
absl::StatusOr<std::string> FindProgram(const std::filesystem::path& dir, const std::string& name);

}  // namespace lathe::cli
