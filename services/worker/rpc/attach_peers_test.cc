#include "services/worker/rpc/attach_protocol.h"

#include <catch2/catch.hpp>

#include <string>
#include <variant>
#include <vector>

#include "services/worker/rpc/testing/fake_executor.h"
#include "services/worker/rpc/testing/test_messages.h"

namespace lathe::worker {
namespace {

using Verdict = AttachProtocol::Verdict;

lathe::v1::EngineMessage FormWith(int64_t epoch, const std::string& session) {
  lathe::v1::EngineMessage message;
  message.mutable_form()->set_epoch(epoch);
  message.mutable_form()->set_term(1);
  message.mutable_form()->mutable_rendezvous()->set_session(session);
  message.mutable_form()->mutable_rendezvous()->set_address("10.0.0.1");
  message.mutable_form()->mutable_rendezvous()->set_port(4000);
  return message;
}

struct Rank {
  explicit Rank(int64_t rank)
      : protocol({.group = "g",
                  .rank = rank,
                  .world = 2,
                  .process_id = "p",
                  .base_model = "b",
                  .mesh = {.tp = 2},
                  .address = "10.0.0.1",
                  .port = 4000},
                 executor, [this](const RendezvousPoint& rendezvous) {
                   rendezvous_points.push_back(rendezvous);
                 }) {}

  FakeExecutor executor;
  std::vector<RendezvousPoint> rendezvous_points;
  AttachProtocol protocol;
};

TEST_CASE("AttachProtocol: a rank reports its place and the session of its set", "[rpc]") {
  Rank rank(1);
  const lathe::v1::Hello first = rank.protocol.BeginStream("s").hello();
  CHECK(first.rank() == 1);
  CHECK(first.world() == 2);
  CHECK(first.mesh().dp() == 1);
  CHECK(first.mesh().tp() == 2);
  CHECK(first.address() == "10.0.0.1");
  CHECK(first.port() == 4000);
  CHECK(first.session().empty());
  CHECK(rank.protocol.Receive(FormWith(3, "s1")) == Verdict::kContinue);
  REQUIRE(rank.rendezvous_points.size() == 1);
  CHECK(rank.rendezvous_points[0].session == "s1");
  CHECK(rank.rendezvous_points[0].address == "10.0.0.1");
  CHECK(rank.rendezvous_points[0].port == 4000);
  const lathe::v1::Hello again = rank.protocol.BeginStream("s").hello();
  CHECK(again.session() == "s1");
  CHECK(again.epoch() == 3);
}

TEST_CASE("AttachProtocol: a rank joins one rendezvous", "[rpc]") {
  Rank rank(0);
  rank.protocol.BeginStream("s");
  rank.protocol.Receive(FormWith(3, "s1"));
  CHECK(rank.protocol.Receive(FormWith(4, "s1")) == Verdict::kContinue);
  CHECK(rank.rendezvous_points.size() == 1);
  CHECK(rank.executor.generation() == 2);
  CHECK(rank.protocol.Receive(FormWith(5, "s2")) == Verdict::kDie);
  CHECK(rank.protocol.reason() == "its peers are gone: the group is formed of other processes");
}

TEST_CASE("AttachProtocol: ranks other than 0 are reset by rank 0", "[rpc]") {
  Rank rank(1);
  rank.protocol.BeginStream("s");
  rank.protocol.Receive(FormWith(3, "s1"));
  CHECK(rank.executor.generation() == 0);
}

std::vector<std::string> RequestIdsOf(const Command& command) {
  std::vector<std::string> ids;
  for (const TrainRequest& request : std::get<TrainBatch>(command).requests) {
    ids.push_back(request.request_id);
  }
  return ids;
}

TEST_CASE("AttachProtocol: peers get what rank 0 runs, and nothing else", "[rpc]") {
  Rank rank(0);
  rank.protocol.BeginStream("s");
  rank.protocol.Receive(FormWith(3, "s1"));
  lathe::v1::EngineMessage first;
  first.set_epoch(3);
  AddTrain(&first, "a");
  rank.protocol.Receive(first);
  lathe::v1::EngineMessage batch;
  batch.set_epoch(3);
  for (const char* id : {"a", "b", "broken", "c"}) AddTrain(&batch, id);
  batch.mutable_train_batch()->mutable_items(2)->mutable_request()->mutable_loss()->set_name("no");
  rank.protocol.Receive(batch);
  lathe::v1::EngineMessage drop;
  drop.set_epoch(3);
  drop.mutable_drop_version()->set_version_id("v");
  rank.protocol.Receive(drop);

  const std::vector<Command> commands = rank.executor.commands();
  const std::vector<std::string> encoded = rank.executor.encoded();
  REQUIRE(commands.size() == 3);
  REQUIRE(encoded.size() == 3);
  for (const size_t i : {0, 1}) {
    CHECK(RequestIdsOf(DecodeCommand(encoded[i]).value()) == RequestIdsOf(commands[i]));
  }
  CHECK(RequestIdsOf(commands[1]) == std::vector<std::string>{"b", "c"});
  CHECK(std::get<DropVersion>(DecodeCommand(encoded[2]).value()).version_id == "v");
}

TEST_CASE("AttachProtocol: nothing is encoded for a rank that is alone", "[rpc]") {
  FakeExecutor executor;
  AttachProtocol protocol({.group = "g", .process_id = "p", .base_model = "b"}, executor);
  protocol.BeginStream("s");
  protocol.Receive(FormWith(3, ""));
  lathe::v1::EngineMessage message;
  message.set_epoch(3);
  AddTrain(&message, "a");
  protocol.Receive(message);
  message.mutable_drop_version()->set_version_id("v");
  protocol.Receive(message);
  CHECK(executor.encoded() == std::vector<std::string>{"", ""});
}

}  // namespace
}  // namespace lathe::worker
