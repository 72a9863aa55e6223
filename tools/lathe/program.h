// Finds the other Lathe programs, and makes what they are started with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::cli {

// Returns the folder of the running program.
std::filesystem::path ProgramDir();

// Returns the path of program `name` in `dir`. Error configuration (NotFound) if it is missing.
absl::StatusOr<std::string> FindProgram(const std::filesystem::path& dir, const std::string& name);

// Returns this process's variables, in which `overrides` (NAME=VALUE) replace those of their names.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& overrides);

// Returns pointers to the texts and a null, as exec takes them. They are valid while `texts` is
// unchanged.
std::vector<char*> PointersTo(std::vector<std::string>& texts);

}  // namespace lathe::cli
