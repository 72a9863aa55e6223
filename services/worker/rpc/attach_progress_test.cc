// Reports of a worker about samples that run.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/rpc/attach_protocol.h"
#include "services/worker/rpc/testing/fake_executor.h"
#include "services/worker/rpc/testing/test_messages.h"

namespace lathe::worker {
namespace {

struct SamplingWorker {
  FakeExecutor executor;
  AttachProtocol protocol{WorkerIdentity{.group = "g", .process_id = "p", .base_model = "b"},
                          executor};

  SamplingWorker() {
    protocol.BeginStream("s");
    protocol.Receive(Form(3, 1));
    Sample(3);
  }
  void Sample(int64_t epoch) {
    lathe::v1::EngineMessage message;
    message.set_epoch(epoch);
    message.mutable_sample()->set_request_id("r");
    lathe::v1::SampleRequest* const request = message.mutable_sample()->mutable_request();
    request->set_num_samples(8);
    request->add_prompt()->set_tokens(WritePacked(std::vector<int32_t>{1}));
    protocol.Receive(message);
  }
  void Absorb(Report report) {
    protocol.Absorb(
        {.generation = executor.generation(), .report = std::move(report), .model = std::nullopt});
  }
  void End(int64_t num_ended, std::vector<SampledToken> tokens = {}) {
    Absorb(SampleProgress{.tokens = std::move(tokens), .ended = {{"r", num_ended}}});
  }
  // The reports that wait for the stream, which all are about progress.
  std::vector<lathe::v1::SampleProgress> Drain() {
    std::vector<lathe::v1::SampleProgress> reports;
    while (auto message = protocol.PopOutgoing()) {
      REQUIRE(message->has_sample_progress());
      reports.push_back(message->sample_progress());
    }
    return reports;
  }
};

TEST_CASE("sequences that have ended are reported", "[rpc]") {
  SamplingWorker worker;
  REQUIRE(worker.executor.commands().size() == 1);
  worker.End(3, {{.request_id = "r", .token = 7}});
  const auto reports = worker.Drain();
  REQUIRE(reports.size() == 1);
  REQUIRE(reports[0].ended_size() == 1);
  CHECK(reports[0].ended(0).request_id() == "r");
  CHECK(reports[0].ended(0).num_ended() == 3);
  CHECK(reports[0].tokens(0).token() == 7);
}

TEST_CASE("an engine that sends a sample again learns how many of its sequences have ended",
          "[rpc]") {
  SamplingWorker worker;
  worker.Sample(3);
  CHECK(worker.Drain().empty());  // none has ended
  worker.protocol.BeginStream("s");
  worker.End(5);
  worker.protocol.Receive(Adopt(4, 2));
  CHECK(worker.Drain().empty());
  worker.Sample(4);
  CHECK(worker.executor.commands().size() == 1);
  const auto reports = worker.Drain();
  REQUIRE(reports.size() == 1);
  REQUIRE(reports[0].ended_size() == 1);
  CHECK(reports[0].ended(0).num_ended() == 5);
  // Its result says all.
  worker.Absorb(SampleDone{"r", {}});
  worker.protocol.PopOutgoing();
  worker.Sample(4);
  const auto again = worker.protocol.PopOutgoing();
  REQUIRE(again.has_value());
  CHECK(again->has_done());
  CHECK(worker.Drain().empty());
}

TEST_CASE("the next formation begins without the sequences of the last one", "[rpc]") {
  SamplingWorker worker;
  worker.End(5);
  worker.protocol.Receive(Form(4, 1));
  worker.Sample(4);
  worker.Sample(4);
  CHECK(worker.Drain().empty());
}

TEST_CASE("a slow stream costs streamed tokens, and no number of sequences", "[rpc]") {
  SamplingWorker worker;
  constexpr int kMany = 2000;
  for (int i = 0; i < kMany; ++i) {
    worker.Absorb(SampleProgress{.tokens = {{.request_id = "r", .token_index = i}}, .ended = {}});
  }
  worker.End(2, {{.request_id = "r", .token_index = kMany}});
  const auto reports = worker.Drain();
  REQUIRE(reports.size() < kMany);
  CHECK(reports.back().tokens_size() == 0);
  REQUIRE(reports.back().ended_size() == 1);
  CHECK(reports.back().ended(0).num_ended() == 2);
}

}  // namespace
}  // namespace lathe::worker
