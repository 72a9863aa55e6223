// The public keys of an identity provider (RFC 7517), and signatures by them. Hides cjose.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::gateway {

// Algorithms that may be configured. All hash with SHA-256; none takes a shared secret.
inline constexpr std::string_view kSigningAlgorithms[] = {"RS256", "PS256", "ES256"};

// Immutable and thread-safe.
class JwkSet {
 public:
  static constexpr size_t kMaxKeys = 100;

  // Reads the RSA and EC keys for signatures; others are skipped. InvalidArgument: `text` is no key
  // set, or has more than kMaxKeys keys.
  static absl::StatusOr<JwkSet> Parse(std::string_view text);

  JwkSet(JwkSet&&) noexcept;
  JwkSet& operator=(JwkSet&&) noexcept;
  ~JwkSet();

  // Returns the payload of `token`, a JWS in compact form, if one of `algorithms` made its
  // signature with a key of the set. Nothing of the payload is read before. The header decides
  // which key and algorithm, within these bounds: `alg` is one of `algorithms`, the key has the
  // type of the algorithm, and there is no `crit`. Errors:
  //   NotFound          no key has the `kid` of the header, so a newer set may have it
  //   InvalidArgument   anything else, for logs only
  absl::StatusOr<std::string> Verify(const std::string& token,
                                     const std::vector<std::string>& algorithms) const;

 private:
  struct Key;

  JwkSet();
  absl::StatusOr<const Key*> FindKey(const std::string& kid, const std::string& alg) const;

  std::vector<std::unique_ptr<Key>> keys_;
};

}  // namespace lathe::gateway
