#include "services/engine/core/plan.h"

#include "services/engine/core/serialize.h"

namespace lathe::engine {
namespace {

// Raise the version when Plan or anything in it changes.
constexpr char kVersion = 5;

}  // namespace

std::string EncodePlan(const Plan& plan) {
  std::string bytes(1, kVersion);
  Writer(&bytes).Write(plan);
  return bytes;
}

std::optional<Plan> DecodePlan(std::string_view bytes) {
  if (bytes.empty() || bytes.front() != kVersion) return std::nullopt;
  return Deserialize<Plan>(bytes.substr(1));
}

}  // namespace lathe::engine
