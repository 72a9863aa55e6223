#include "services/worker/executor/lockstep/lockstep_round.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

TEST_CASE("the items of a round come back as they were", "[round]") {
  const std::string command("a\0b", 3);
  const std::string encoded = EncodeRoundItems(
      {RoundCommand{command}, RoundReset{7}, RoundVersionJob{-3},
       RoundRecoveryJob{7, absl::DataLossError("torn")}, RoundRecoveryJob{8, absl::OkStatus()},
       RoundSave{int64_t{5} << 32}, RoundCommand{}});
  const std::vector<RoundItem> items = DecodeRoundItems(encoded).value();
  REQUIRE(items.size() == 7);
  CHECK(std::get<RoundCommand>(items[0]).encoded == command);
  CHECK(std::get<RoundReset>(items[1]).generation == 7);
  CHECK(std::get<RoundVersionJob>(items[2]).ticket == -3);
  CHECK(std::get<RoundRecoveryJob>(items[3]).number == 7);
  CHECK(std::get<RoundRecoveryJob>(items[3]).status == absl::DataLossError("torn"));
  CHECK(std::get<RoundRecoveryJob>(items[4]).status.ok());
  CHECK(std::get<RoundSave>(items[5]).num_bytes == int64_t{5} << 32);
  CHECK(std::get<RoundCommand>(items[6]).encoded.empty());
}

TEST_CASE("a truncated round is refused", "[round]") {
  const std::string encoded = EncodeRoundItems({RoundCommand{"abc"}});
  for (size_t size = 1; size < encoded.size(); ++size) {
    CHECK_FALSE(DecodeRoundItems(std::string_view(encoded).substr(0, size)).ok());
  }
  CHECK_FALSE(DecodeRoundItems(std::string(16, '\x55')).ok());
}

}  // namespace
}  // namespace lathe::worker
