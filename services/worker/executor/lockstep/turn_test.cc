#include "services/worker/executor/lockstep/turn.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

TEST_CASE("a turn's items come back as they were", "[turn]") {
  const std::string command("a\0b", 3);
  const std::string encoded =
      EncodeTurnItems({TurnCommand{command}, TurnReset{7}, TurnVersionJob{-3},
                       TurnRecoveryJob{7, absl::DataLossError("torn")},
                       TurnRecoveryJob{8, absl::OkStatus()}, TurnCommand{}});
  const std::vector<TurnItem> items = DecodeTurnItems(encoded).value();
  REQUIRE(items.size() == 6);
  CHECK(std::get<TurnCommand>(items[0]).encoded == command);
  CHECK(std::get<TurnReset>(items[1]).generation == 7);
  CHECK(std::get<TurnVersionJob>(items[2]).ticket == -3);
  CHECK(std::get<TurnRecoveryJob>(items[3]).number == 7);
  CHECK(std::get<TurnRecoveryJob>(items[3]).status == absl::DataLossError("torn"));
  CHECK(std::get<TurnRecoveryJob>(items[4]).status.ok());
  CHECK(std::get<TurnCommand>(items[5]).encoded.empty());
}

TEST_CASE("a turn that is cut off anywhere is refused", "[turn]") {
  const std::string encoded = EncodeTurnItems({TurnCommand{"abc"}});
  for (size_t size = 1; size < encoded.size(); ++size) {
    CHECK_FALSE(DecodeTurnItems(std::string_view(encoded).substr(0, size)).ok());
  }
  CHECK_FALSE(DecodeTurnItems(std::string(16, '\x55')).ok());
}

}  // namespace
}  // namespace lathe::worker
