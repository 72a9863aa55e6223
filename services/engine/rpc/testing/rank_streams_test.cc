// Streams of the ranks of one group, over gRPC.
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libs/common/protocol.h"
#include "services/engine/rpc/testing/test_engine.h"

namespace lathe::engine {
namespace {

struct StreamsFixture {
  FakeWorker::Options OptionsOf(int64_t rank) const {
    FakeWorker::Options options = engine.WorkerOptions();
    options.rank = rank;
    options.tp = 2;
    options.process_id = "process-" + std::to_string(rank);
    return options;
  }

  v1::GroupStatus Group() {
    grpc::ClientContext context;
    v1::GetStatusResponse status;
    REQUIRE(engine.admin().GetStatus(&context, {}, &status).ok());
    return status.groups_size() == 0 ? v1::GroupStatus() : status.groups(0);
  }
  void WaitForRanks(int count) {
    while (Group().ranks_size() != count) std::this_thread::yield();
  }

  TestEngine engine;
};

template <typename Has>
v1::EngineMessage WaitFor(FakeWorker& worker, const Has& has) {
  while (true) {
    for (const v1::EngineMessage& message : worker.received()) {
      if (has(message)) return message;
    }
    std::this_thread::yield();
  }
}

bool IsForm(const v1::EngineMessage& message) { return message.has_form(); }
bool IsDie(const v1::EngineMessage& message) { return message.has_die(); }

TEST_CASE("Ranks over gRPC: all are formed when the last has come, and go with one of them",
          "[dispatcher]") {
  StreamsFixture f;
  FakeWorker leader(f.OptionsOf(0));
  f.WaitForRanks(1);
  CHECK(leader.received().empty());
  {
    FakeWorker peer(f.OptionsOf(1));
    const v1::Form formed = WaitFor(leader, IsForm).form();
    CHECK(formed.rendezvous().address() == "10.0.0.1");
    CHECK(formed.rendezvous().port() == 4000);
    CHECK(WaitFor(peer, IsForm).form().rendezvous().session() == formed.rendezvous().session());
    f.engine.WaitForBaseModel("tiny");
    const v1::GroupStatus group = f.Group();
    CHECK(group.tp() == 2);
    REQUIRE(group.ranks_size() == 2);
    CHECK(group.ranks(1).rank() == 1);
  }
  // The loss of a stream alone changes nothing; another process in its place does.
  f.WaitForRanks(1);
  FakeWorker::Options next = f.OptionsOf(1);
  next.process_id = "process-2";
  FakeWorker other(next);
  CHECK(WaitFor(leader, IsDie).die().reason() ==
        "a rank of the group is lost: its process is gone");
}

TEST_CASE("Ranks over gRPC: a rank of another kind than its group is refused by name",
          "[dispatcher]") {
  StreamsFixture f;
  FakeWorker leader(f.OptionsOf(0));
  f.WaitForRanks(1);
  FakeWorker::Options options = f.OptionsOf(1);
  std::string error;
  SECTION("its mesh") {
    options.tp = 4;
    error =
        "rank 1 of group g0 has mesh dp 1 x fsdp 1 x tp 4, but attached rank 0 has dp 1 x "
        "fsdp 1 x tp 2";
  }
  SECTION("its base model") {
    options.base_model = "other";
    error = "rank 1 of group g0 has base model other, but attached rank 0 has tiny";
  }
  SECTION("its place") {
    options.rank = 2;
    error = "rank is 2, want 0 to 1";
  }
  SECTION("its release") {
    options.version = "9.9.9";
    error = absl::StrCat("rank 1 of group g0 has version 9.9.9 (protocol ", OwnProtocol().newest,
                         "), but attached rank 0 has version ");
  }
  SECTION("its protocol") {
    options.protocol = {};
    error = "protocol 0 of the worker (version ";
  }
  FakeWorker peer(options);
  const grpc::Status status = peer.WaitForEnd();
  CHECK(status.error_message().substr(0, error.size()) == error);
}

TEST_CASE("Ranks over gRPC: the status has each rank's memory", "[dispatcher]") {
  StreamsFixture f;
  FakeWorker leader(f.OptionsOf(0));
  FakeWorker peer(f.OptionsOf(1));
  f.WaitForRanks(2);
  v1::WorkerHeartbeat heartbeat;
  heartbeat.mutable_counters()->set_generated_tokens(9);
  v1::MemoryUse& memory = *heartbeat.mutable_memory();
  memory.set_used_bytes(70);
  memory.set_limit_bytes(100);
  v1::MemoryShare& base = *memory.add_shares();
  base.set_owner("base");
  base.set_used_bytes(70);
  base.set_limit_bytes(80);
  peer.Beat(heartbeat);
  v1::GroupStatus group = f.Group();
  while (!group.ranks(1).has_memory()) {
    std::this_thread::yield();
    group = f.Group();
  }
  CHECK(group.ranks(1).memory().SerializeAsString() == memory.SerializeAsString());
  CHECK(!group.ranks(0).has_memory());  // no heartbeat yet
  CHECK(group.counters().generated_tokens() == 0);
}

TEST_CASE("Ranks over gRPC: the status has the counters of rank 0's last heartbeat",
          "[dispatcher]") {
  StreamsFixture f;
  FakeWorker leader(f.OptionsOf(0));
  FakeWorker peer(f.OptionsOf(1));
  f.WaitForRanks(2);
  CHECK(f.Group().has_counters());  // zeros before the first heartbeat
  v1::WorkerHeartbeat heartbeat;
  heartbeat.mutable_counters()->set_train_passes(3);
  heartbeat.mutable_counters()->set_generated_tokens(70);
  leader.Beat(heartbeat);
  v1::GroupStatus group = f.Group();
  while (group.counters().train_passes() == 0) {
    std::this_thread::yield();
    group = f.Group();
  }
  CHECK(group.counters().SerializeAsString() == heartbeat.counters().SerializeAsString());
}

TEST_CASE("Ranks over gRPC: a stream is that of one process", "[dispatcher]") {
  StreamsFixture f;
  FakeWorker leader(f.OptionsOf(0));
  f.WaitForRanks(1);
  leader.RepeatHello();
  CHECK(leader.WaitForEnd().error_message() == "a stream sends hello once");
}

}  // namespace
}  // namespace lathe::engine
