// Bodies too large for a row, one file each.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

// Thread-safe: every body has its own file.
class BodyFiles {
 public:
  // Creates the directory (0700) when it is missing.
  static absl::StatusOr<BodyFiles> Open(std::filesystem::path dir);

  // Durable when this returns. `body_id` names no other file.
  absl::Status Write(const std::string& body_id, const std::string& bytes) const;
  // NotFound when there is no such file.
  absl::StatusOr<std::string> Read(const std::string& body_id) const;
  // A file that is not there is fine.
  void Remove(const std::string& body_id) const;
  // Removes every file whose name is not in `live`.
  void RemoveAllBut(const std::set<std::string>& live) const;

 private:
  explicit BodyFiles(std::filesystem::path dir) : dir_(std::move(dir)) {}

  std::filesystem::path dir_;
};

}  // namespace lathe::engine
