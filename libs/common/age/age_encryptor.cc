// Source: https://age-encryption.org/v1, "The age file encryption format".
#include "libs/common/age/age_encryptor.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

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
