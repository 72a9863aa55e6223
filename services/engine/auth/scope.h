// Scopes: the permissions of a key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::engine {

// One permission, as a bit of Scopes.
enum class Scope : uint32_t {
  kTrain = 1,
  kSample = 2,
  kRead = 4,
  kCheckpointsWrite = 8,
  // Administers the key's own tenant.
  kAdmin = 16,
  // Administers every tenant.
  kOperator = 32,
};

// A set of scopes. Operator contains all others, admin all but operator.
class Scopes {
 public:
  constexpr Scopes() = default;
  constexpr Scopes(Scope scope) : bits_(static_cast<uint32_t>(scope)) {}  // NOLINT

  constexpr Scopes operator|(Scopes other) const { return Scopes(bits_ | other.bits_); }
  bool HasAny(Scopes wanted) const {
    constexpr auto kAdmin = static_cast<uint32_t>(Scope::kAdmin);
    constexpr auto kOperator = static_cast<uint32_t>(Scope::kOperator);
    if ((bits_ & kOperator) != 0) return true;
    return ((bits_ & kAdmin) != 0 && wanted.bits_ != kOperator) || (bits_ & wanted.bits_) != 0;
  }

  // Returns the names, "train", "checkpoints:write", …, in a fixed order.
  std::vector<std::string> Words() const;
  // Returns InvalidArgument that names the unknown word and the known ones.
  static absl::StatusOr<Scopes> Parse(const std::vector<std::string>& words);

 private:
  explicit constexpr Scopes(uint32_t bits) : bits_(bits) {}

  uint32_t bits_ = 0;
};

constexpr Scopes operator|(Scope a, Scope b) { return Scopes(a) | Scopes(b); }

}  // namespace lathe::engine
