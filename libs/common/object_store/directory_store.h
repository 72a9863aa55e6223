// Objects as files below a directory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "libs/common/object_store/object_store.h"

namespace lathe {

// An object is a file of its name below `root`. Files are written aside, synced and renamed.
class DirectoryStore : public ObjectStore {
 public:
  explicit DirectoryStore(std::filesystem::path root);

  std::string AddressOf(const std::string& name) const override;
  absl::Status PutFile(const std::string& name, const std::filesystem::path& file) override;
  absl::Status PutText(const std::string& name, const std::string& text) override;
  absl::Status PutIfAbsent(const std::string& name, const std::string& text) override;
  absl::StatusOr<std::string> Get(const std::string& name, int64_t offset, int64_t size) override;
  absl::StatusOr<std::string> GetText(const std::string& name, int64_t max_bytes) override;
  absl::Status GetFile(const std::string& name, int64_t size,
                       const std::filesystem::path& file) override;
  absl::StatusOr<ObjectInfo> Head(const std::string& name) override;
  absl::StatusOr<std::vector<ObjectInfo>> List(const std::string& prefix) override;
  absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  absl::Status Copy(const std::string& from, const std::string& to, int64_t size) override;
  absl::Status Delete(const std::string& name) override;
  absl::StatusOr<int64_t> AbortUploads(const std::string& prefix, absl::Time before) override;

 private:
  const std::filesystem::path root_;
};

}  // namespace lathe
