#include "services/engine/dispatcher/report_decoder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "libs/common/rpc/testing/recorded_messages.h"

namespace lathe::engine {
namespace {

v1::Hello HelloOf(int64_t rank, int64_t world, int64_t dp, int64_t fsdp, int64_t tp) {
  v1::Hello hello;
  hello.set_rank(rank);
  hello.set_world(world);
  hello.mutable_mesh()->set_dp(dp);
  hello.mutable_mesh()->set_fsdp(fsdp);
  hello.mutable_mesh()->set_tp(tp);
  hello.set_address("10.0.0.1");
  hello.set_port(4000);
  return hello;
}

TEST_CASE("Hello: a rank within its mesh is taken", "[dispatcher]") {
  v1::Hello alone;
  alone.set_world(1);
  CHECK(CheckMesh(alone).ok());
  CHECK(CheckMesh(HelloOf(0, 12, 2, 2, 3)).ok());
  CHECK(CheckMesh(HelloOf(11, 12, 2, 2, 3)).ok());
}

TEST_CASE("Hello: an impossible value is named, with its bound", "[dispatcher]") {
  const auto error = [](const v1::Hello& hello) {
    const absl::Status status = CheckMesh(hello);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(error(HelloOf(0, 2, 0, 1, 2)) == "dp is 0, want 1 to 4096");
  CHECK(error(HelloOf(0, 2, 1, 4097, 2)) == "fsdp is 4097, want 1 to 4096");
  CHECK(error(HelloOf(0, 3, 1, 1, 2)) ==
        "world is 3, mesh dp 1 x fsdp 1 x tp 2 has 2 ranks, limit is 4096");
  CHECK(error(HelloOf(0, 8192, 2, 1, 4096)) ==
        "world is 8192, mesh dp 2 x fsdp 1 x tp 4096 has 8192 ranks, limit is 4096");
  CHECK(error(HelloOf(2, 2, 1, 1, 2)) == "rank is 2, want 0 to 1");
  CHECK(error(HelloOf(-1, 2, 1, 1, 2)) == "rank is -1, want 0 to 1");
}

TEST_CASE("Hello: rank 0 of several gives its rendezvous address", "[dispatcher]") {
  v1::Hello hello = HelloOf(0, 2, 1, 1, 2);
  hello.set_port(0);
  CHECK(CheckMesh(hello).message() == "rank 0 reports no address and port for its peers");
  hello.set_rank(1);
  CHECK(CheckMesh(hello).ok());
}

TEST_CASE("Hello: a worker works for an engine with the same place of checkpoints only",
          "[dispatcher]") {
  const CheckpointPlace none;
  const CheckpointPlace own{.address = "s3://a/b", .store_id = "1"};
  v1::Hello hello;  // also that of a release without object stores
  CHECK(WhyOtherPlace(none, hello).empty());
  CHECK_THAT(WhyOtherPlace(own, hello),
             Catch::StartsWith("the engine keeps checkpoints in s3://a/b "
                               "(store 1), the worker keeps them in "
                               "its data directory: "));
  hello.mutable_checkpoint_place()->set_address("s3://a/b");
  CHECK(WhyOtherPlace(own, hello).empty());  // its store does not answer yet
  CHECK_FALSE(WhyOtherPlace(none, hello).empty());
  hello.mutable_checkpoint_place()->set_store_id("2");
  CHECK_FALSE(WhyOtherPlace(own, hello).empty());
  hello.mutable_checkpoint_place()->set_address("s3://alias/b");
  CHECK_FALSE(WhyOtherPlace(own, hello).empty());
  hello.mutable_checkpoint_place()->set_store_id("1");
  CHECK(WhyOtherPlace(own, hello).empty());
}

TEST_CASE("Ready: a base model comes with its modules in their order", "[dispatcher]") {
  v1::ModelInfo model;
  const auto add = [&model](const char* name, v1::LoraFamily family) {
    v1::LoraModule* const module = model.add_lora_modules();
    module->set_name(name);
    module->set_family(family);
  };
  add("lm_head", v1::LORA_FAMILY_UNEMBEDDING);
  add("router", v1::LORA_FAMILY_MLP);
  add("q_proj", v1::LORA_FAMILY_ATTENTION);
  CHECK(ToReady(model).row.lora_modules ==
        std::vector<LoraModule>{{"lm_head", LoraFamily::kUnembedding},
                                {"router", LoraFamily::kMlp},
                                {"q_proj", LoraFamily::kAttention}});
}

TEST_CASE("Reports: how many samples a worker runs, and which sequences have ended",
          "[dispatcher]") {
  v1::ModelInfo model;
  CHECK(ToReady(model).max_running_samples == 0);  // a worker of the release before
  model.set_max_running_samples(256);
  CHECK(ToReady(model).max_running_samples == 256);
  v1::SampleProgress progress;
  v1::EndedSequences* const ended = progress.add_ended();
  ended->set_request_id("r");
  ended->set_num_ended(3);
  const WorkerSampleProgress event = ToEvent("g", 4, progress);
  CHECK(event.group == "g");
  CHECK(event.epoch == 4);
  REQUIRE(event.ended.size() == 1);
  CHECK(event.ended[0].request_id == "r");
  CHECK(event.ended[0].num_ended == 3);
}

// Ids that the core finds an operation or a version by.
std::string IdOf(const v1::WorkerMessage& message) {
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello:
      return ToEvent(message.hello()).group;
    case v1::WorkerMessage::kReady:
      return ToReady(message.ready().model()).row.name;
    case v1::WorkerMessage::kStarted:
      return ToEvent("g", 1, message.started()).request_ids.at(0);
    case v1::WorkerMessage::kDone:
      return ToEvent("g", 1, message.done(), "result").request_id;
    case v1::WorkerMessage::kVersionLoaded:
      return ToEvent("g", 1, message.version_loaded()).version_id;
    case v1::WorkerMessage::kVersionServed:
      return ToEvent("g", 1, message.version_served()).version_id;
    case v1::WorkerMessage::kVersionFailed:
      return ToEvent("g", 1, message.version_failed()).version_id;
    case v1::WorkerMessage::kSnapshotDone:
      return ToEvent("g", 1, message.snapshot_done()).snapshot_id;
    case v1::WorkerMessage::kVersionSaved:
      return ToEvent("g", 1, message.version_saved()).version_id;
    case v1::WorkerMessage::kSampleProgress:
      return ToTokens(message.sample_progress()).at(0).request_id;
    default:
      return "not converted";
  }
}

TEST_CASE("Reports: those of the release before are understood", "[dispatcher]") {
  const std::vector<v1::WorkerMessage> messages =
      RecordedMessages<v1::WorkerMessage>(LATHE_COMPAT_DIR "/WorkerPool.txtpb");
  CHECK(messages.size() >= 14);
  for (const v1::WorkerMessage& message : messages) {
    INFO(message.DebugString());
    CHECK(message.epoch() == 1);
    CHECK_FALSE(IdOf(message).empty());
  }
}

}  // namespace
}  // namespace lathe::engine
