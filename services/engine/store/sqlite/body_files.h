// Stores bodies that are too large for a row, one file each.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

// A directory of body files. Thread-safe, because every body has a file of its own.
class BodyFiles {
 public:
  // Opens `dir`, which is created (mode 0700) when it is missing.
  static absl::StatusOr<BodyFiles> Open(std::filesystem::path dir);

  // The file is durable when this returns. `body_id` must be unique.
  absl::Status Write(const std::string& body_id, const std::string& bytes) const;
  // Returns NotFound when there is no such file.
  absl::StatusOr<std::string> Read(const std::string& body_id) const;
  // Removes the file. It is no error when the file does not exist.
  void Remove(const std::string& body_id) const;
  // Removes every file whose name is not in `live`.
  void RemoveAllBut(const std::set<std::string>& live) const;

 private:
  explicit BodyFiles(std::filesystem::path dir) : dir_(std::move(dir)) {}

  std::filesystem::path dir_;
};

}  // namespace lathe::engine
