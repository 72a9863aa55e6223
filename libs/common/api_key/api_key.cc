#include "libs/common/api_key/api_key.h"

#include <array>
#include <cstdint>

#include "libs/common/random/random_id.h"

namespace lathe {
namespace {

constexpr std::string_view kPrefix = "tml-";
constexpr size_t kIdLength = 12;
constexpr size_t kSecretLength = 30;
constexpr size_t kChecksumLength = 6;
constexpr size_t kLength = kPrefix.size() + kIdLength + 1 + kSecretLength + 1 + kChecksumLength;

constexpr std::string_view kBase62 =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// CRC-32 as in gzip (polynomial 0xEDB88320).
uint32_t Crc32(std::string_view data) {
  uint32_t crc = ~uint32_t{0};
  for (const unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::string Checksum(std::string_view data) {
  std::string text(kChecksumLength, '0');
  uint32_t value = Crc32(data);
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit) {
    *digit = kBase62[value % kBase62.size()];
    value /= kBase62.size();
  }
  return text;
}

bool IsBase62(std::string_view text) {
  return text.find_first_not_of(kBase62) == std::string_view::npos;
}

}  // namespace

ApiKeyText MakeApiKey() {
  ApiKeyText key;
  key.key_id = RandomBase62(kIdLength);
  key.text = std::string(kPrefix) + key.key_id + "_" + RandomBase62(kSecretLength);
  key.text += "_" + Checksum(key.text);
  return key;
}

std::optional<std::string> ParseKeyId(std::string_view text) {
  if (text.size() != kLength || !text.starts_with(kPrefix)) return std::nullopt;
  const std::string_view key_id = text.substr(kPrefix.size(), kIdLength);
  const std::string_view body = text.substr(0, kLength - kChecksumLength - 1);
  const std::string_view secret = body.substr(kPrefix.size() + kIdLength + 1);
  const bool has_form = text[kPrefix.size() + kIdLength] == '_' && text[body.size()] == '_' &&
                        IsBase62(key_id) && IsBase62(secret);
  if (!has_form || text.substr(body.size() + 1) != Checksum(body)) return std::nullopt;
  return std::string(key_id);
}

}  // namespace lathe
