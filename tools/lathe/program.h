// Finds the other Lathe programs.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::cli {

// Returns the folder of the running program.
std::filesystem::path ProgramDir();

// Returns the path of program `name` in `dir`. Error configuration (NotFound) if it is missing.
absl::StatusOr<std::string> FindProgram(const std::filesystem::path& dir, const std::string& name);

}  // namespace lathe::cli
