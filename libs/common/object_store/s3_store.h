// Objects in a bucket of S3, or of a store with the same interface.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "libs/common/object_store/object_store.h"
#include "libs/common/object_store/s3_client.h"

namespace lathe {

// Objects have the names PREFIX/NAME in the bucket. Files larger than a part are sent and fetched
// in parts, some of them at a time.
class S3Store : public ObjectStore {
 public:
  S3Store(S3Options options, AwsCredentials::Environment environment);

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
  void Cancel() override { client_.Cancel(); }

 private:
  std::string KeyOf(const std::string& name) const;
  // Returns the name of a key below the prefix.
  std::string NameOf(const std::string& key) const;
  int64_t PartBytes(int64_t size) const;
  // Returns NotFound if a GET says the same as a HEAD did, and Unavailable otherwise.
  absl::Status ConfirmMissing(const std::string& name);
  // Begins an upload in parts, has `put(upload_id)` send them, and completes the upload. Aborts it
  // after an error.
  template <typename Put>
  absl::Status PutParts(const std::string& name, int64_t size, const Put& put);
  absl::Status Complete(const std::string& name, const std::string& upload_id,
                        const std::string& body, int64_t size);
  absl::Status CopyThroughHere(const std::string& from, const std::string& to, int64_t size);
  absl::Status PutLargeFile(const std::string& name, int descriptor, int64_t size);

  S3Client client_;
};

}  // namespace lathe
