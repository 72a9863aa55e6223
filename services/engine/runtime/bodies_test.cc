#include "services/engine/runtime/bodies.h"

#include <catch2/catch.hpp>

#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct BodiesFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});

  bool HasFile(const std::string& body_id) const {
    return std::filesystem::exists(dir.path() / "bodies" / body_id);
  }
};

TEST_CASE("Bodies: a large body is in the store before its row is", "[runtime]") {
  BodiesFixture f;
  Bodies bodies(*f.store, 1 << 20);
  const PayloadRef large = *bodies.Add(std::string(kInlineBodyBytes + 1, 'x'), 7);
  CHECK(large.bytes == kInlineBodyBytes + 1);
  CHECK(large.tokens == 7);
  CHECK(f.HasFile(large.body_id));
  const PayloadRef small = *bodies.Add("small", 1);
  CHECK_FALSE(f.HasFile(small.body_id));
  CHECK(*bodies.InMemory(small.body_id) == "small");
}

TEST_CASE("Bodies: one that was never committed leaves no file behind", "[runtime]") {
  BodiesFixture f;
  Bodies bodies(*f.store, 1 << 20);
  const PayloadRef ref = *bodies.Add(std::string(kInlineBodyBytes + 1, 'x'), 0);
  bodies.Forget(ref.body_id);
  CHECK_FALSE(f.HasFile(ref.body_id));
  CHECK(bodies.InMemory(ref.body_id) == nullptr);
}

TEST_CASE("Bodies: above the bound the oldest committed one is read from the store", "[runtime]") {
  BodiesFixture f;
  Bodies bodies(*f.store, kInlineBodyBytes + 100);
  const PayloadRef first = *bodies.Add(std::string(kInlineBodyBytes + 1, '1'), 0);
  const PayloadRef second = *bodies.Add(std::string(kInlineBodyBytes + 1, '2'), 0);
  // Nothing may leave memory before its commit.
  CHECK(bodies.InMemory(first.body_id) != nullptr);
  CHECK(bodies.InMemory(second.body_id) != nullptr);
  bodies.MarkCommitted(first.body_id);
  bodies.MarkCommitted(second.body_id);
  CHECK(bodies.InMemory(first.body_id) == nullptr);
  CHECK(bodies.InMemory(second.body_id) != nullptr);
  CHECK((*bodies.Read(first.body_id))->front() == '1');
  CHECK(bodies.Read("unknown").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lathe::engine
