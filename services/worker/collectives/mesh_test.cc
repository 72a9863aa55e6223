#include "services/worker/collectives/mesh.h"

#include <set>
#include <vector>

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

Mesh MeshOf(const MeshShape& shape, int rank) {
  return Mesh::Create(shape, rank, shape.world()).value();
}

std::string RefusalOf(const MeshShape& shape, int rank, int world) {
  const absl::StatusOr<Mesh> mesh = Mesh::Create(shape, rank, world);
  CHECK(mesh.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(mesh.status().message());
}

}  // namespace

TEST_CASE("Mesh: tp is the innermost axis and dp the outermost", "[collectives]") {
  const Mesh mesh = MeshOf({.dp = 2, .fsdp = 3, .tp = 2}, 0);
  CHECK(mesh.PositionOf(0) == MeshPosition{0, 0, 0});
  CHECK(mesh.PositionOf(1) == MeshPosition{0, 0, 1});
  CHECK(mesh.PositionOf(2) == MeshPosition{0, 1, 0});
  CHECK(mesh.PositionOf(6) == MeshPosition{1, 0, 0});
  CHECK(mesh.PositionOf(11) == MeshPosition{1, 2, 1});
}

TEST_CASE("Mesh: every rank has a place of its own, and the place gives the rank",
          "[collectives]") {
  const MeshShape shape = GENERATE(MeshShape{1, 1, 1}, MeshShape{4, 1, 1}, MeshShape{1, 1, 4},
                                   MeshShape{2, 3, 2}, MeshShape{3, 2, 5});
  const Mesh mesh = MeshOf(shape, 0);
  std::set<MeshPosition> places;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    CHECK(mesh.RankAt(mesh.PositionOf(rank)) == rank);
    places.insert(mesh.PositionOf(rank));
  }
  CHECK(static_cast<int>(places.size()) == shape.world());
}

TEST_CASE("Mesh: a sub-mesh holds the ranks that differ on its axes only", "[collectives]") {
  // dp 2 x fsdp 2 x tp 2; rank 5 is (1, 0, 1).
  const Mesh mesh = MeshOf({.dp = 2, .fsdp = 2, .tp = 2}, 5);
  CHECK(mesh.Along({Axis::kTp}).ranks == std::vector<int>{4, 5});
  CHECK(mesh.Along({Axis::kFsdp}).ranks == std::vector<int>{5, 7});
  CHECK(mesh.Along({Axis::kDp}).ranks == std::vector<int>{1, 5});
  CHECK(mesh.Along({Axis::kTp, Axis::kFsdp}).ranks == std::vector<int>{4, 5, 6, 7});
  CHECK(mesh.Along({Axis::kDp, Axis::kFsdp}).ranks == std::vector<int>{1, 3, 5, 7});
  CHECK(mesh.Along({Axis::kDp, Axis::kFsdp, Axis::kTp}).world() == 8);
}

TEST_CASE("Mesh: a sub-mesh says its axes and the rank's place in it", "[collectives]") {
  const Mesh mesh = MeshOf({.dp = 2, .fsdp = 2, .tp = 2}, 5);
  CHECK(mesh.Along({Axis::kTp}).axis == "tp");
  CHECK(mesh.Along({Axis::kTp}).rank == 1);
  CHECK(mesh.Along({Axis::kFsdp}).rank == 0);
  CHECK(mesh.Along({Axis::kTp, Axis::kDp}).axis == "dp.tp");
  CHECK(mesh.Along({Axis::kDp, Axis::kFsdp}).rank == 2);
}

TEST_CASE("Mesh: the sub-meshes of one axis part the world", "[collectives]") {
  const MeshShape shape{.dp = 2, .fsdp = 3, .tp = 2};
  const Axis axis = GENERATE(Axis::kDp, Axis::kFsdp, Axis::kTp);
  std::multiset<int> seen;
  for (int rank = 0; rank < shape.world(); ++rank) {
    const SubMesh along = MeshOf(shape, rank).Along({axis});
    CHECK(along.ranks[along.rank] == rank);
    if (along.rank == 0) seen.insert(along.ranks.begin(), along.ranks.end());
  }
  CHECK(static_cast<int>(seen.size()) == shape.world());
  CHECK(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
}

TEST_CASE("Mesh: a wrong world, rank or axis is refused by name", "[collectives]") {
  CHECK(RefusalOf({.dp = 2, .tp = 2}, 0, 3) ==
        "mesh dp 2 x fsdp 1 x tp 2 needs 4 ranks, the world has 3");
  CHECK(RefusalOf({.tp = 2}, 2, 2) == "rank is 2, must be in [0, 2)");
  CHECK(RefusalOf({.tp = 2}, -1, 2) == "rank is -1, must be in [0, 2)");
  CHECK(RefusalOf({.fsdp = 0}, 0, 0) == "mesh axis fsdp is 0, must be at least 1");
}

}  // namespace lathe::worker
