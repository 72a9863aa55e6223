#include "services/worker/executor/versions/served_versions.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>

namespace lathe::worker {
namespace {

ServedVersion Version(int64_t seq_id) {
  auto bytes = std::make_shared<const std::string>("weights of " + std::to_string(seq_id));
  ServedVersion version{
      .header = {.num_bytes = static_cast<int64_t>(bytes->size()), .seq_id = seq_id},
      .data = bytes->data()};
  version.holder = std::move(bytes);
  return version;
}

TEST_CASE("a served version is taken as often as it was announced", "[versions]") {
  ServedVersions versions;
  CHECK(absl::IsNotFound(versions.Take("v", 1).status()));
  versions.Put("v", Version(1), 1);
  versions.Put("v", Version(1), 1);
  CHECK(absl::IsNotFound(versions.Take("v", 2).status()));
  const auto taken = versions.Take("v", 1);
  REQUIRE(taken.ok());
  CHECK((*taken)->header.seq_id == 1);
  CHECK(versions.Take("v", 1).ok());
  CHECK(absl::IsNotFound(versions.Take("v", 1).status()));
  CHECK(*static_cast<const char*>((*taken)->data) == 'w');  // the read continues
}

TEST_CASE("a newer publication takes the place of the one before", "[versions]") {
  ServedVersions versions;
  versions.Put("v", Version(1), 3);
  versions.Put("v", Version(5), 1);
  CHECK(absl::IsNotFound(versions.Take("v", 1).status()));
  CHECK(versions.Take("v", 5).ok());
}

TEST_CASE("versions without readers are removed", "[versions]") {
  ServedVersions versions;
  for (size_t i = 0; i <= ServedVersions::kMaxVersions; ++i) {
    versions.Put("v" + std::to_string(i), Version(1), 1);
  }
  CHECK(absl::IsNotFound(versions.Take("v0", 1).status()));
  CHECK(versions.Take("v1", 1).ok());
  versions.Drop("v2");
  CHECK(absl::IsNotFound(versions.Take("v2", 1).status()));
  versions.Clear();
  CHECK(absl::IsNotFound(versions.Take("v3", 1).status()));
}

}  // namespace
}  // namespace lathe::worker
