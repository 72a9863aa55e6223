#include "services/worker/collectives/mesh.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lathe::worker {
namespace {

absl::Status CheckAxis(const char* name, int size) {
  if (size >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("mesh axis %s is %d, must be at least 1", name, size));
}

std::string NameOf(std::initializer_list<Axis> axes) {
  std::vector<const char*> names;
  const auto has = [axes](Axis axis) { return std::ranges::find(axes, axis) != axes.end(); };
  if (has(Axis::kDp)) names.push_back("dp");
  if (has(Axis::kFsdp)) names.push_back("fsdp");
  if (has(Axis::kTp)) names.push_back("tp");
  return absl::StrJoin(names, ".");
}

}  // namespace

std::string MeshShape::ToString() const {
  return absl::StrCat("dp ", dp, " x fsdp ", fsdp, " x tp ", tp);
}

absl::StatusOr<Mesh> Mesh::Create(const MeshShape& shape, int rank, int world) {
  for (const absl::Status& status :
       {CheckAxis("dp", shape.dp), CheckAxis("fsdp", shape.fsdp), CheckAxis("tp", shape.tp)}) {
    if (!status.ok()) return status;
  }
  if (shape.world() != world) {
    return absl::InvalidArgumentError(absl::StrFormat("mesh %s needs %d ranks, the world has %d",
                                                      shape.ToString(), shape.world(), world));
  }
  if (rank < 0 || rank >= world) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank is %d, must be in [0, %d)", rank, world));
  }
  return Mesh(shape, rank);
}

MeshPosition Mesh::PositionOf(int rank) const {
  return {.dp = rank / (shape_.fsdp * shape_.tp),
          .fsdp = rank / shape_.tp % shape_.fsdp,
          .tp = rank % shape_.tp};
}

int Mesh::RankAt(const MeshPosition& position) const {
  return (position.dp * shape_.fsdp + position.fsdp) * shape_.tp + position.tp;
}

SubMesh Mesh::Along(std::initializer_list<Axis> axes) const {
  const MeshPosition own = position();
  const auto fixed = [axes](Axis axis) { return std::ranges::find(axes, axis) == axes.end(); };
  SubMesh along{.axis = NameOf(axes)};
  for (int other = 0; other < world(); ++other) {
    const MeshPosition place = PositionOf(other);
    if (fixed(Axis::kDp) && place.dp != own.dp) continue;
    if (fixed(Axis::kFsdp) && place.fsdp != own.fsdp) continue;
    if (fixed(Axis::kTp) && place.tp != own.tp) continue;
    if (other == rank_) along.rank = along.world();
    along.ranks.push_back(other);
  }
  return along;
}

}  // namespace lathe::worker
