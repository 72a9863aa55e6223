// The ranks of a group as a grid. Does not include torch, so that any code can check a rank's
// place.
#pragma once

#include <compare>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::worker {

// Axes from the outermost to the innermost. Ranks of one tp sub-mesh are neighbours, usually on one
// host, because they communicate in every layer. Ranks along dp communicate only once per step.
enum class Axis { kDp, kFsdp, kTp };

struct MeshShape {
  int dp = 1;
  int fsdp = 1;
  int tp = 1;

  int world() const { return dp * fsdp * tp; }
  // Returns text such as "dp 2 x fsdp 1 x tp 2".
  std::string ToString() const;
};

// Coordinates of a rank on each axis, from 0.
struct MeshPosition {
  int dp = 0;
  int fsdp = 0;
  int tp = 0;

  auto operator<=>(const MeshPosition&) const = default;
};

// The ranks of one communicator.
struct SubMesh {
  // Axes on which the ranks differ, outermost first: "tp", "dp.fsdp".
  std::string axis;
  // Ranks in the mesh, ascending.
  std::vector<int> ranks;
  // Index of this process in `ranks`: its rank in the communicator.
  int rank = 0;

  int world() const { return static_cast<int>(ranks.size()); }
};

// The mesh as one rank sees it.
class Mesh {
 public:
  // InvalidArgument: an axis below 1, a `world` that is not the shape's, or a rank outside it.
  static absl::StatusOr<Mesh> Create(const MeshShape& shape, int rank, int world);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int world() const { return shape_.world(); }

  MeshPosition position() const { return PositionOf(rank_); }
  // Inverse of RankAt: rank = (dp · shape().fsdp + fsdp) · shape().tp + tp.
  MeshPosition PositionOf(int rank) const;
  int RankAt(const MeshPosition& position) const;

  // Returns this rank and the ranks that differ from it on the given axes only. {kTp} sums within
  // a layer, {kFsdp, kTp} is one replica, {kDp, kFsdp} sums gradients. All three are all ranks.
  SubMesh Along(std::initializer_list<Axis> axes) const;

 private:
  Mesh(const MeshShape& shape, int rank) : shape_(shape), rank_(rank) {}

  MeshShape shape_;
  int rank_;
};

}  // namespace lathe::worker
