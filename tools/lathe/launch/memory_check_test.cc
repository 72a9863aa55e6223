#include "tools/lathe/launch/memory_check.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

TEST_CASE("A model that does not fit is refused with the numbers", "[memory]") {
  CHECK(CheckMemory(2 * kGib, 4 * kGib).ok());
  const absl::Status status = CheckMemory(4 * kGib, 4 * kGib);
  CHECK(ErrorCode(status) == "too_little_memory");
  CHECK(absl::StrContains(status.message(), "needs about 4.9 GiB"));
  CHECK(absl::StrContains(status.message(), "4.0 GiB are available"));
  CHECK(ExitCodeOf(status) == 69);
}

}  // namespace
}  // namespace lathe::cli
