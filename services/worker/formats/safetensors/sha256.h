// SHA-256 of byte streams and files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct evp_md_ctx_st;

namespace lathe::worker {

// A running digest: call Update any number of times, then HexDigest once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(const void* data, size_t num_bytes);
  void Update(const std::string& text) { Update(text.data(), text.size()); }

  // Returns 64 lower-case hex digits. The object must not be used afterwards.
  std::string HexDigest();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

struct FileDigest {
  int64_t size_bytes = 0;
  std::string sha256;  // hex
};

// Computes the digest of a whole file. Errors as in read_error.h.
absl::StatusOr<FileDigest> DigestFile(const std::filesystem::path& path);

}  // namespace lathe::worker
