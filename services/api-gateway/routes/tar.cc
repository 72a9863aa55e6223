#include "services/api-gateway/routes/tar.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace lathe::gateway {
namespace {

// Offsets and lengths of header fields, POSIX.1-1988 ustar.
constexpr size_t kNameBytes = 100;
constexpr size_t kModeAt = 100, kOwnerAt = 108, kGroupAt = 116, kSizeAt = 124, kTimeAt = 136,
                 kChecksumAt = 148, kTypeAt = 156, kMagicAt = 257;
constexpr size_t kSizeBytes = 12;
constexpr int64_t kMaxOctalSize = int64_t{1} << 33;

void Put(std::string& block, size_t at, const std::string& text) {
  std::memcpy(block.data() + at, text.data(), text.size());
}

void PutSize(std::string& block, int64_t num_bytes) {
  if (num_bytes < kMaxOctalSize) {
    Put(block, kSizeAt, absl::StrFormat("%011o", num_bytes));
    return;
  }
  block[kSizeAt] = static_cast<char>(0x80);
  for (size_t i = 0; i < 8; ++i) {
    block[kSizeAt + kSizeBytes - 1 - i] = static_cast<char>((num_bytes >> (8 * i)) & 0xff);
  }
}

int64_t RoundUp(int64_t num_bytes) {
  return (num_bytes + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
}

}  // namespace

absl::StatusOr<std::string> TarHeader(const TarMember& member, absl::Time modified_at) {
  if (member.name.empty() || member.name.size() > kNameBytes || member.name[0] == '.' ||
      absl::StrContains(member.name, "/")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' cannot be the name of an archive member", member.name));
  }
  std::string block(kTarBlockBytes, '\0');
  Put(block, 0, member.name);
  Put(block, kModeAt, "0000644");
  Put(block, kOwnerAt, "0000000");
  Put(block, kGroupAt, "0000000");
  PutSize(block, member.num_bytes);
  Put(block, kTimeAt, absl::StrFormat("%011o", absl::ToUnixSeconds(modified_at)));
  Put(block, kChecksumAt, "        ");
  block[kTypeAt] = '0';
  Put(block, kMagicAt,
      std::string("ustar\0"
                  "00",
                  8));
  uint32_t checksum = 0;
  for (const char c : block) checksum += static_cast<uint8_t>(c);
  Put(block, kChecksumAt, absl::StrFormat("%06o", checksum) + std::string("\0 ", 2));
  return block;
}

std::string TarPadding(int64_t num_bytes) {
  return std::string(RoundUp(num_bytes) - num_bytes, '\0');
}

std::string TarEnd() { return std::string(2 * kTarBlockBytes, '\0'); }

int64_t TarBytes(const std::vector<TarMember>& members) {
  int64_t total = 2 * kTarBlockBytes;
  for (const TarMember& member : members) total += kTarBlockBytes + RoundUp(member.num_bytes);
  return total;
}

}  // namespace lathe::gateway
