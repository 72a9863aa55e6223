#include "libs/common/age/age_recipient.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe {

namespace {

constexpr std::string_view kCharset = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
constexpr size_t kChecksumLength = 6;
constexpr size_t kMaxLength = 1000;

absl::Status Malformed(const char* why) {
  return absl::InvalidArgumentError(std::string("not a Bech32 key: ") + why);
}

uint32_t Polymod(const std::vector<uint8_t>& values) {
  constexpr std::array<uint32_t, 5> kGenerator = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
                                                  0x2a1462b3};
  uint32_t checksum = 1;
  for (const uint8_t value : values) {
    const uint32_t top = checksum >> 25;
    checksum = (checksum & 0x1ffffff) << 5 ^ value;
    for (size_t i = 0; i < kGenerator.size(); ++i) {
      if ((top >> i & 1) != 0) checksum ^= kGenerator[i];
    }
  }
  return checksum;
}

// Joins groups of five bits into bytes. The padding must be zero and shorter than a group.
absl::StatusOr<std::string> JoinBits(const std::vector<uint8_t>& groups) {
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const uint8_t group : groups) {
    bits = bits << 5 | group;
    num_bits += 5;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
  }
  if (num_bits >= 5 || (bits & ((1u << num_bits) - 1)) != 0) return Malformed("bad padding");
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> DecodeBech32(std::string_view text, std::string_view prefix) {
  if (text.size() > kMaxLength) return Malformed("too long");
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  if (lower != text && absl::AsciiStrToUpper(std::string(text)) != text) {
    return Malformed("upper and lower case are mixed");
  }
  const size_t separator = lower.rfind('1');
  if (separator == std::string::npos || separator == 0 || lower.substr(0, separator) != prefix) {
    return Malformed("another prefix");
  }
  std::vector<uint8_t> groups;
  for (const char c : lower.substr(separator + 1)) {
    const size_t value = kCharset.find(c);
    if (value == std::string_view::npos) return Malformed("a character outside the alphabet");
    groups.push_back(static_cast<uint8_t>(value));
  }
  if (groups.size() < kChecksumLength) return Malformed("too short");
  std::vector<uint8_t> checked;
  for (const char c : prefix) checked.push_back(static_cast<uint8_t>(c) >> 5);
  checked.push_back(0);
  for (const char c : prefix) checked.push_back(static_cast<uint8_t>(c) & 31);
  checked.insert(checked.end(), groups.begin(), groups.end());
  if (Polymod(checked) != 1) return Malformed("its checksum is wrong");
  groups.resize(groups.size() - kChecksumLength);
  return JoinBits(groups);
}

absl::StatusOr<AgeRecipient> ParseAgeRecipient(std::string_view text) {
  if (absl::StartsWith(AbslView(text), "ssh-")) {
    return absl::InvalidArgumentError(
        "SSH keys are not supported as recipients; give an X25519 key (age1…)");
  }
  ASSIGN_OR_RETURN(const std::string bytes, DecodeBech32(text, "age"));
  AgeRecipient recipient;
  if (bytes.size() != recipient.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an X25519 key has %d bytes, this has %d", recipient.size(), bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), recipient.begin());
  return recipient;
}

}  // namespace lathe
