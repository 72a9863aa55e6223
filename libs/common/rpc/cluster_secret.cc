#include "libs/common/rpc/cluster_secret.h"

#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "libs/common/digest/sha256.h"

namespace lathe {

std::string ReadSecretFile(const std::string& path) {
  std::ifstream file(path);
  std::string secret((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  return secret;
}

std::string GatewaySecretOf(std::string_view worker_secret) {
  return absl::BytesToHexString(HmacSha256(worker_secret, "lathe gateway"));
}

}  // namespace lathe
