// Source: https://age-encryption.org/v1, "The age file encryption format".
#include "libs/common/age/age.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe {
namespace {

// Digits of Bech32 (BIP 173), the text form of a key.
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

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kTagBytes = crypto_aead_chacha20poly1305_ietf_ABYTES;
constexpr size_t kNonceBytes = crypto_aead_chacha20poly1305_ietf_NPUBBYTES;

using Key = std::array<unsigned char, 32>;
using FileKey = std::array<unsigned char, 16>;

std::string_view View(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

template <typename Array>
std::string_view View(const Array& array) {
  return View(array.data(), array.size());
}

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Key HmacSha256(std::string_view key, std::string_view message) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, Bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, Bytes(message), message.size());
  Key digest;
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

// HKDF-SHA-256 (RFC 5869) with one output block. libsodium has it only from version 1.0.19.
Key HkdfSha256(std::string_view secret, std::string_view salt, std::string_view info) {
  const Key extracted = HmacSha256(salt, secret);
  return HmacSha256(View(extracted), std::string(info) + '\x01');
}

// Encodes in the standard Base64 alphabet, without padding.
std::string Base64(std::string_view bytes) {
  std::string text = absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()));
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

void SealWith(const Key& key, const unsigned char* nonce, std::string_view plaintext,
              std::string& out) {
  const size_t begin = out.size();
  out.resize(begin + plaintext.size() + kTagBytes);
  unsigned long long written = 0;
  crypto_aead_chacha20poly1305_ietf_encrypt(reinterpret_cast<unsigned char*>(out.data()) + begin,
                                            &written, Bytes(plaintext), plaintext.size(), nullptr,
                                            0, nullptr, nonce, key.data());
}

// Returns the header stanza from which only `recipient` can unwrap the file key.
absl::StatusOr<std::string> X25519Stanza(const AgeRecipient& recipient, const FileKey& file_key) {
  Key ephemeral;
  Key share;
  Key shared;
  randombytes_buf(ephemeral.data(), ephemeral.size());
  const bool is_usable = crypto_scalarmult_base(share.data(), ephemeral.data()) == 0 &&
                         crypto_scalarmult(shared.data(), ephemeral.data(), recipient.data()) == 0;
  sodium_memzero(ephemeral.data(), ephemeral.size());
  if (!is_usable) {
    return absl::InvalidArgumentError("the recipient's key is a point of low order");
  }
  std::string salt(View(share));
  salt.append(View(recipient));
  Key wrap_key = HkdfSha256(View(shared), salt, "age-encryption.org/v1/X25519");
  constexpr std::array<unsigned char, kNonceBytes> kZeroNonce = {};
  std::string wrapped;
  SealWith(wrap_key, kZeroNonce.data(), View(file_key), wrapped);
  sodium_memzero(shared.data(), shared.size());
  sodium_memzero(wrap_key.data(), wrap_key.size());
  return "-> X25519 " + Base64(View(share)) + "\n" + Base64(wrapped) + "\n";
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

struct AgeEncryptor::Keys {
  Key payload;
  uint64_t num_chunks = 0;

  ~Keys() { sodium_memzero(payload.data(), payload.size()); }
};

AgeEncryptor::AgeEncryptor(std::unique_ptr<Keys> keys, std::string head)
    : keys_(std::move(keys)), head_(std::move(head)) {}

AgeEncryptor::~AgeEncryptor() { sodium_memzero(pending_.data(), pending_.size()); }

absl::StatusOr<std::unique_ptr<AgeEncryptor>> AgeEncryptor::Create(
    const std::vector<AgeRecipient>& recipients) {
  if (sodium_init() < 0) return absl::InternalError("libsodium cannot be initialized");
  if (recipients.empty()) return absl::InvalidArgumentError("no recipients are given");
  FileKey file_key;
  randombytes_buf(file_key.data(), file_key.size());
  std::string head = "age-encryption.org/v1\n";
  for (const AgeRecipient& recipient : recipients) {
    ASSIGN_OR_RETURN(const std::string stanza, X25519Stanza(recipient, file_key));
    head += stanza;
  }
  head += "---";
  const Key mac_key = HkdfSha256(View(file_key), "", "header");
  head += " " + Base64(View(HmacSha256(View(mac_key), head))) + "\n";
  std::array<unsigned char, 16> nonce;
  randombytes_buf(nonce.data(), nonce.size());
  head.append(View(nonce));
  auto keys = std::make_unique<Keys>();
  keys->payload = HkdfSha256(View(file_key), View(nonce), "payload");
  sodium_memzero(file_key.data(), file_key.size());
  return std::unique_ptr<AgeEncryptor>(new AgeEncryptor(std::move(keys), std::move(head)));
}

void AgeEncryptor::Seal(std::string_view chunk, bool is_last, std::string& out) {
  // The nonce is an 11-byte big-endian counter and a byte that marks the last chunk.
  std::array<unsigned char, kNonceBytes> nonce = {};
  for (size_t i = 0; i < 8; ++i) {
    nonce[10 - i] = static_cast<unsigned char>(keys_->num_chunks >> (8 * i));
  }
  nonce[11] = is_last ? 1 : 0;
  ++keys_->num_chunks;
  SealWith(keys_->payload, nonce.data(), chunk, out);
}

std::string AgeEncryptor::Update(std::string_view plaintext) {
  std::string out = std::exchange(head_, {});
  out.reserve(out.size() + plaintext.size() + (plaintext.size() / kChunkBytes + 2) * kTagBytes);
  while (!plaintext.empty()) {
    // Only the last chunk may be short, and it must not be empty. So a full chunk waits for more
    // plaintext.
    if (pending_.size() == kChunkBytes) {
      Seal(pending_, /*is_last=*/false, out);
      pending_.clear();
    }
    if (pending_.empty() && plaintext.size() > kChunkBytes) {
      Seal(plaintext.substr(0, kChunkBytes), /*is_last=*/false, out);
      plaintext.remove_prefix(kChunkBytes);
      continue;
    }
    const size_t taken = std::min(plaintext.size(), kChunkBytes - pending_.size());
    pending_.append(plaintext.substr(0, taken));
    plaintext.remove_prefix(taken);
  }
  return out;
}

std::string AgeEncryptor::Finish() {
  std::string out = std::exchange(head_, {});
  Seal(pending_, /*is_last=*/true, out);
  return out;
}

}  // namespace lathe
