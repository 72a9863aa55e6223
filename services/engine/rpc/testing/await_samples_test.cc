// AwaitSamples against an engine, its store and a worker.
#include <catch2/catch.hpp>
#include <thread>

#include "libs/common/errors.h"
#include "services/engine/rpc/testing/sampling_fixture.h"

namespace lathe::engine {
namespace {

struct SamplesFixture : SamplingFixture {
  explicit SamplesFixture(bool answers = true) : SamplingFixture(answers) {}

  std::string Submit(int64_t seq_id) {
    sample.set_seq_id(seq_id);
    v1::SampleSubmitResponse response;
    REQUIRE(engine.engine().Sample(CallContext(client.key()), sample, &response).ok());
    return response.request_id();
  }

  v1::AwaitSamplesRequest Question(int64_t cursor = 0, int64_t wait_ms = 40'000) const {
    v1::AwaitSamplesRequest question;
    question.set_sampling_session_id(sample.sampling_session_id());
    question.set_cursor(cursor);
    question.set_wait_ms(wait_ms);
    return question;
  }

  v1::AwaitSamplesResponse Ask(const v1::AwaitSamplesRequest& question) {
    v1::AwaitSamplesResponse response;
    const grpc::Status status =
        engine.engine().AwaitSamples(CallContext(client.key()), question, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return response;
  }
};

TEST_CASE("AwaitSamples: each sample that ends is listed once", "[engine]") {
  SamplesFixture f;
  int64_t cursor = 0;
  for (int64_t seq_id = 0; seq_id < 3; ++seq_id) {
    const std::string request_id = f.Submit(seq_id);
    const v1::AwaitSamplesResponse answer = f.Ask(f.Question(cursor));
    REQUIRE(answer.samples_size() == 1);
    CHECK(answer.samples(0).request_id() == request_id);
    CHECK_FALSE(answer.samples(0).failed());
    CHECK(answer.samples(0).result_bytes() > 0);
    CHECK(answer.cursor() > cursor);
    cursor = answer.cursor();
  }
  const v1::AwaitSamplesResponse none = f.Ask(f.Question(cursor, /*wait_ms=*/0));
  CHECK(none.samples_size() == 0);
  CHECK(none.cursor() == cursor);
}

TEST_CASE("AwaitSamples: waits for the sample that ends next", "[engine]") {
  SamplesFixture f(/*answers=*/false);
  const std::string request_id = f.Submit(0);
  v1::AwaitSamplesResponse answer;
  std::thread waiter([&] { answer = f.Ask(f.Question()); });
  f.worker.StartAnswering();
  waiter.join();
  REQUIRE(answer.samples_size() == 1);
  CHECK(answer.samples(0).request_id() == request_id);
}

TEST_CASE("AwaitSamples: a sample that was cancelled is listed as failed", "[engine]") {
  SamplesFixture f(/*answers=*/false);
  v1::CancelSampleRequest cancel;
  cancel.set_request_id(f.Submit(0));
  v1::CancelSampleResponse cancelled;
  REQUIRE(f.engine.engine().CancelSample(CallContext(f.client.key()), cancel, &cancelled).ok());
  const v1::AwaitSamplesResponse answer = f.Ask(f.Question());
  REQUIRE(answer.samples_size() == 1);
  CHECK(answer.samples(0).failed());
}

TEST_CASE("AwaitSamples: copies of a client get their own samples only", "[engine]") {
  SamplesFixture f;
  const std::string first = f.Submit(0);
  const std::string copy = f.Submit(2'000'000'001);
  v1::AwaitSamplesRequest question = f.Question();
  question.set_clone_number(2);
  const v1::AwaitSamplesResponse of_copy = f.Ask(question);
  REQUIRE(of_copy.samples_size() == 1);
  CHECK(of_copy.samples(0).request_id() == copy);
  CHECK(f.Ask(f.Question()).samples(0).request_id() == first);
}

TEST_CASE("AwaitSamples: a result stays, though the client says that it has it", "[engine]") {
  SamplesFixture f;
  const std::string request_id = f.Submit(0);
  const v1::OperationResult result = f.client.Result(request_id);
  v1::AwaitSamplesRequest question = f.Question(0, /*wait_ms=*/0);
  question.add_retrieved_request_ids(request_id);
  f.Ask(question);
  CHECK(f.client.Result(request_id).SerializeAsString() == result.SerializeAsString());
}

TEST_CASE("AwaitSamples: a cursor goes on after a restart, and misses nothing", "[engine]") {
  SamplesFixture f;
  f.Submit(0);
  const int64_t cursor = f.Ask(f.Question()).cursor();
  const std::string second = f.Submit(1);
  REQUIRE(f.Ask(f.Question(cursor)).samples_size() == 1);  // a response that is lost
  f.worker.Detach();
  f.engine.Restart();
  const v1::AwaitSamplesResponse answer = f.Ask(f.Question(cursor));
  REQUIRE(answer.samples_size() == 1);
  CHECK(answer.samples(0).request_id() == second);
  CHECK(answer.samples(0).result_bytes() > 0);
  f.client.Result(second);
  f.worker.Attach(f.engine.WorkerOptions().address);
  const std::string third = f.Submit(2);
  const v1::AwaitSamplesResponse next = f.Ask(f.Question(answer.cursor()));
  REQUIRE(next.samples_size() == 1);
  CHECK(next.samples(0).request_id() == third);
}

TEST_CASE("AwaitSamples: bounds are named", "[engine]") {
  SamplesFixture f;
  v1::AwaitSamplesRequest question = f.Question();
  v1::AwaitSamplesResponse response;
  const auto refused = [&](const std::string& text) {
    const grpc::Status status =
        f.engine.engine().AwaitSamples(CallContext(f.client.key()), question, &response);
    CHECK(status.error_code() == grpc::INVALID_ARGUMENT);
    CHECK_THAT(status.error_message(), Catch::Contains(text));
  };
  question.set_wait_ms(40'001);
  refused("wait_ms is 40001, expected 0 to 40000");
  question = f.Question(-1);
  refused("cursor is -1");
  question = f.Question();
  question.set_clone_number(-1);
  refused("clone_number is -1");
}

}  // namespace
}  // namespace lathe::engine
