#include "services/worker/formats/safetensors/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "services/worker/formats/safetensors/read_error.h"

namespace lathe::worker {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Deleter::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

void Sha256::Update(const void* data, size_t num_bytes) {
  EVP_DigestUpdate(context_.get(), data, num_bytes);
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), length));
}

absl::StatusOr<FileDigest> DigestFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ReadError(path, "open", errno);
  Sha256 hash;
  FileDigest digest;
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    hash.Update(buffer.data(), static_cast<size_t>(file.gcount()));
    digest.size_bytes += file.gcount();
  }
  if (file.bad()) return ReadError(path, "read", errno);
  digest.sha256 = hash.HexDigest();
  return digest;
}

}  // namespace lathe::worker
