#include "services/api-gateway/http/byte_budget.h"

#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST_CASE("A budget admits what fits and gets it back", "[http]") {
  const ByteBudget budget(64 * kMiB);
  {
    ByteBudget::Share share(budget, "a");
    CHECK(share.GrowTo(10 * kMiB).ok());
    CHECK(share.GrowTo(5 * kMiB).ok());
    CHECK(share.Add(2 * kMiB).ok());
    CHECK(budget.num_reserved() == 12 * kMiB);
    ByteBudget::Share moved = std::move(share);
    CHECK(budget.num_reserved() == 12 * kMiB);
    moved.Release();
    CHECK(budget.num_reserved() == 0);
    CHECK(moved.GrowTo(kMiB).ok());
  }
  CHECK(budget.num_reserved() == 0);
}

TEST_CASE("A full budget asks to try again and keeps an eighth for small requests", "[http]") {
  const ByteBudget budget(64 * kMiB);
  ByteBudget::Share a(budget, "a");
  ByteBudget::Share b(budget, "b");
  CHECK(a.GrowTo(32 * kMiB).ok());
  const absl::Status status = b.GrowTo(32 * kMiB);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ErrorCode(status) == "gateway_full");
  CHECK(b.bytes() == 0);
  CHECK(b.GrowTo(24 * kMiB).ok());
  CHECK_FALSE(ByteBudget::Share(budget, "c").CheckRoom(2 * kMiB).ok());
  CHECK(ByteBudget::Share(budget, "c").GrowTo(kMiB).ok());
  a.Release();
  CHECK(ByteBudget::Share(budget, "c").GrowTo(2 * kMiB).ok());
}

TEST_CASE("One key gets half of a budget, and never more", "[http]") {
  const ByteBudget budget(64 * kMiB);
  ByteBudget::Share first(budget, "a");
  ByteBudget::Share second(budget, "a");
  CHECK(first.GrowTo(20 * kMiB).ok());
  CHECK(ErrorCode(second.GrowTo(20 * kMiB)) == "gateway_full");
  CHECK(second.GrowTo(12 * kMiB).ok());
  CHECK(ByteBudget::Share(budget, "b").GrowTo(20 * kMiB).ok());
  CHECK(ErrorCode(ByteBudget::Share(budget, "b").GrowTo(33 * kMiB)) == "body_too_large");
}

TEST_CASE("A share without a budget admits everything", "[http]") {
  ByteBudget::Share share;
  CHECK(share.GrowTo(int64_t{1} << 50).ok());
  share.Release();
}

}  // namespace
}  // namespace lathe::gateway
