#include "services/worker/rpc/piece.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

TEST_CASE("a small message is sent whole", "[rpc]") {
  lathe::v1::WorkerMessage message;
  message.mutable_heartbeat()->set_progress(3);
  const auto parts = SplitMessage(message);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].heartbeat().progress() == 3);
}

TEST_CASE("the pieces of a large message are its serialized form", "[rpc]") {
  lathe::v1::WorkerMessage message;
  message.set_epoch(7);
  message.mutable_done()->set_request_id(std::string(1000, 'x'));
  std::string data;
  const auto parts = SplitMessage(message, /*max_piece_bytes=*/300);
  REQUIRE(parts.size() == 4);
  for (size_t i = 0; i < parts.size(); ++i) {
    CHECK(parts[i].epoch() == 7);
    CHECK(parts[i].piece().data().size() <= 300);
    CHECK(parts[i].piece().last() == (i + 1 == parts.size()));
    data += parts[i].piece().data();
  }
  lathe::v1::WorkerMessage joined;
  REQUIRE(joined.ParseFromString(data));
  CHECK(joined.done().request_id() == message.done().request_id());
  CHECK(SplitMessage(parts[0], /*max_piece_bytes=*/300).size() == 1);
}

TEST_CASE("pieces join while other messages pass between them", "[rpc]") {
  lathe::v1::EngineMessage whole;
  whole.mutable_load_version()->set_version_id(std::string(100, 'v'));
  const std::string data = whole.SerializeAsString();
  lathe::v1::EngineMessage first, second, other;
  first.mutable_piece()->set_data(data.substr(0, 40));
  second.mutable_piece()->set_data(data.substr(40));
  second.mutable_piece()->set_last(true);
  other.mutable_cancel()->set_request_id("r");
  PieceJoiner joiner;
  CHECK_FALSE(*joiner.Join(&first));
  CHECK(*joiner.Join(&other));
  CHECK(other.cancel().request_id() == "r");
  CHECK(*joiner.Join(&second));
  CHECK(second.load_version().version_id() == std::string(100, 'v'));
}

TEST_CASE("pieces that are no message are refused", "[rpc]") {
  lathe::v1::EngineMessage broken;
  broken.mutable_piece()->set_data("\xff\xff\xff");
  broken.mutable_piece()->set_last(true);
  CHECK_FALSE(PieceJoiner().Join(&broken).ok());
}

}  // namespace
}  // namespace lathe::worker
