#include "tools/lathe/launch/memory_check.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

TEST_CASE("A model that does not fit is refused with the numbers", "[memory]") {
  CHECK(CheckMemory({"big", 2 * kGib, 4 * kGib}).ok());
  const absl::Status status = CheckMemory({"big", 4 * kGib, 4 * kGib});
  CHECK(ErrorCode(status) == "too_little_memory");
  CHECK(status.message() ==
        "the model needs about 4.9 GiB of memory (4.0 GiB of weights), 4.0 GiB are available");
  CHECK(ExitCodeOf(status) == 69);
}

TEST_CASE("A model that does not fit into its share is refused with the share", "[memory]") {
  CHECK(CheckMemory({"big", 2 * kGib, 8 * kGib, 0.5}).ok());
  const absl::Status status = CheckMemory({"big", 4 * kGib, 8 * kGib, 0.5});
  CHECK(ErrorCode(status) == "too_little_memory");
  CHECK(absl::StrContains(status.message(),
                          "4.0 GiB are available: memory_share of big is 0.5 of 8.0 GiB"));
}

}  // namespace
}  // namespace lathe::cli
