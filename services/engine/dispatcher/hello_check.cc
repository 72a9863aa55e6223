#include "services/engine/dispatcher/hello_check.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/dispatcher/report_decoder.h"

namespace lathe::engine {
namespace {

constexpr int64_t kMaxWorld = 4096;
constexpr int64_t kMaxPort = 65535;

}  // namespace

std::string Describe(const MeshShape& mesh) {
  return absl::StrFormat("dp %d x fsdp %d x tp %d", mesh.dp, mesh.fsdp, mesh.tp);
}

absl::Status CheckMesh(const v1::Hello& hello) {
  const MeshShape mesh = ToMesh(hello);
  for (const auto& [axis, size] :
       {std::pair("dp", mesh.dp), std::pair("fsdp", mesh.fsdp), std::pair("tp", mesh.tp)}) {
    if (size >= 1 && size <= kMaxWorld) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is %d, want 1 to %d", axis, size, kMaxWorld));
  }
  // Each axis is bounded, so the product does not overflow.
  if (hello.world() != mesh.world() || hello.world() > kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrFormat("world is %d, mesh %s has %d ranks, limit is %d", hello.world(),
                        Describe(mesh), mesh.world(), kMaxWorld));
  }
  if (hello.rank() < 0 || hello.rank() >= hello.world()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank is %d, want 0 to %d", hello.rank(), hello.world() - 1));
  }
  const bool has_peers = hello.rank() == 0 && hello.world() > 1;
  if (has_peers && (hello.address().empty() || hello.port() < 1 || hello.port() > kMaxPort)) {
    return absl::InvalidArgumentError("rank 0 reports no address and port for its peers");
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
