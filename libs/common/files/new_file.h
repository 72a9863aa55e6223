// A file that exists only when it is complete and durable.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace lathe {

// A file (mode 0600) that did not exist before. It is removed again unless Sync completes it.
// Errors have the status of errno and the path: a full disk is ResourceExhausted.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path) : path_(std::move(path)) {}
  NewFile(const NewFile&) = delete;
  ~NewFile();

  // Returns AlreadyExists if there is a file of this name.
  absl::Status Open();
  absl::Status Write(std::string_view text);
  // Makes the file and its name durable.
  absl::Status Sync();

 private:
  absl::Status Flush();
  absl::Status Error(const char* what) const;

  const std::filesystem::path path_;
  std::string buffer_;
  int fd_ = -1;
  bool is_complete_ = false;
};

}  // namespace lathe
