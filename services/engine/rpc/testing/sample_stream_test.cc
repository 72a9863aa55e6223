// SampleStream from the caller to a worker that reports tokens, and back.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libs/common/errors.h"
#include "services/engine/rpc/testing/sampling_fixture.h"

namespace lathe::engine {
namespace {

using Reader = std::unique_ptr<grpc::ClientReader<v1::SampleStreamResponse>>;

// The worker answers each sample with token 7.
struct StreamFixture : SamplingFixture {
  using SamplingFixture::SamplingFixture;
  v1::SampleRequest& request = sample;

  // Waits for the message in which the worker gets the stream's sample, and returns it.
  v1::Sample WaitForSample() {
    while (true) {
      for (const v1::EngineMessage& message : worker.received()) {
        if (message.has_sample()) return message.sample();
      }
      std::this_thread::yield();
    }
  }

  // Waits until the worker, which runs the sample, has the command to report it.
  void WaitForStream(const std::string& request_id) {
    bool was_reported = false;
    while (!was_reported) {
      bool has_sample = false;
      for (const v1::EngineMessage& message : worker.received()) {
        has_sample |= message.has_sample() || message.has_adopt();
        was_reported |= has_sample && message.has_stream_sample() &&
                        message.stream_sample().request_id() == request_id;
      }
      std::this_thread::yield();
    }
  }

  void Report(const std::string& request_id, int64_t token_index, int32_t token) {
    v1::SampleProgress progress;
    v1::SampledToken* const one = progress.add_tokens();
    one->set_request_id(request_id);
    one->set_token_index(token_index);
    one->set_token(token);
    one->set_logprob(-0.5F);
    worker.Report(progress);
  }
};

std::vector<int32_t> TokensOf(const v1::SampleTokens& tokens) {
  std::vector<int32_t> values(tokens.tokens().size() / 4);
  std::memcpy(values.data(), tokens.tokens().data(), tokens.tokens().size());
  return values;
}

std::string ReadAccepted(const Reader& reader) {
  v1::SampleStreamResponse response;
  REQUIRE(reader->Read(&response));
  REQUIRE(response.has_accepted());
  CHECK(response.accepted().sample_sequence_ids_size() == 1);
  return response.accepted().request_id();
}

v1::SampleTokens ReadTokens(const Reader& reader) {
  v1::SampleStreamResponse response;
  REQUIRE(reader->Read(&response));
  INFO(response.ShortDebugString());
  REQUIRE(response.has_tokens());
  return response.tokens();
}

TEST_CASE("SampleStream: tokens come before the result, which adds the rest", "[stream]") {
  StreamFixture f(/*answers=*/false);
  CallContext context(f.client.key());
  const Reader reader = f.engine.streaming().SampleStream(context, f.request);
  const std::string request_id = ReadAccepted(reader);
  const v1::Sample sample = f.WaitForSample();
  CHECK(sample.streamed());
  CHECK(sample.request_id() == request_id);

  f.Report(request_id, 0, 7);
  const v1::SampleTokens first = ReadTokens(reader);
  CHECK(TokensOf(first) == std::vector<int32_t>{7});
  CHECK(first.token_index() == 0);
  CHECK(first.stop() == v1::SAMPLE_STOP_UNSPECIFIED);

  f.worker.StartAnswering();
  const v1::SampleTokens last = ReadTokens(reader);
  CHECK(last.tokens().empty());
  CHECK(last.stop() == v1::SAMPLE_STOP_LENGTH);
  v1::SampleStreamResponse response;
  REQUIRE(reader->Read(&response));
  CHECK(response.has_end());
  CHECK_FALSE(reader->Read(&response));
  CHECK(reader->Finish().ok());
  CHECK(f.client.Result(request_id).sample().sequences_size() == 1);
}

TEST_CASE("SampleStream: tokens behind a gap wait for the result", "[stream]") {
  StreamFixture f(/*answers=*/false);
  CallContext context(f.client.key());
  const Reader reader = f.engine.streaming().SampleStream(context, f.request);
  const std::string request_id = ReadAccepted(reader);
  f.WaitForSample();
  f.Report(request_id, 1, 9);
  f.worker.StartAnswering();
  const v1::SampleTokens only = ReadTokens(reader);
  CHECK(TokensOf(only) == std::vector<int32_t>{7});
  CHECK(only.stop() == v1::SAMPLE_STOP_LENGTH);
}

TEST_CASE("SampleStream: the same request again streams the same result", "[stream]") {
  StreamFixture f(/*answers=*/true);
  std::vector<std::string> request_ids;
  for (int i = 0; i < 2; ++i) {
    CallContext context(f.client.key());
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    request_ids.push_back(ReadAccepted(reader));
    CHECK(TokensOf(ReadTokens(reader)) == std::vector<int32_t>{7});
    v1::SampleStreamResponse response;
    while (reader->Read(&response)) {
    }
    CHECK(reader->Finish().ok());
  }
  CHECK(request_ids[0] == request_ids[1]);
}

TEST_CASE("SampleStream: a caller that leaves cancels the sample", "[stream]") {
  StreamFixture f(/*answers=*/false);
  std::string request_id;
  {
    CallContext context(f.client.key());
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    request_id = ReadAccepted(reader);
    f.WaitForSample();
    static_cast<grpc::ClientContext*>(context)->TryCancel();
    CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  }
  const v1::OperationResult result = f.client.Result(request_id);
  CHECK(result.error().code() == "cancelled");
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  // The worker gets the command on another stream, possibly later.
  bool was_reported = false;
  while (!was_reported) {
    for (const v1::EngineMessage& message : f.worker.received()) {
      was_reported |= message.has_cancel() && message.cancel().request_id() == request_id;
    }
    std::this_thread::yield();
  }
}

TEST_CASE("SampleStream: one of two streams may leave", "[stream]") {
  StreamFixture f(/*answers=*/false);
  CallContext staying(f.client.key());
  const Reader reader = f.engine.streaming().SampleStream(staying, f.request);
  const std::string request_id = ReadAccepted(reader);
  {
    CallContext leaving(f.client.key());
    const Reader other = f.engine.streaming().SampleStream(leaving, f.request);
    CHECK(ReadAccepted(other) == request_id);
    static_cast<grpc::ClientContext*>(leaving)->TryCancel();
    other->Finish();
  }
  f.worker.StartAnswering();
  CHECK(TokensOf(ReadTokens(reader)) == std::vector<int32_t>{7});
}

TEST_CASE("SampleStream: a worker that runs the sample already reports it from the first token",
          "[stream]") {
  StreamFixture f(/*answers=*/false);
  v1::SampleSubmitResponse submitted;
  REQUIRE(f.engine.engine().Sample(CallContext(f.client.key()), f.request, &submitted).ok());
  CHECK_FALSE(f.WaitForSample().streamed());
  CallContext context(f.client.key());
  const Reader reader = f.engine.streaming().SampleStream(context, f.request);
  const std::string request_id = ReadAccepted(reader);
  CHECK(request_id == submitted.request_id());
  f.WaitForStream(request_id);
  f.Report(request_id, 0, 7);
  CHECK(TokensOf(ReadTokens(reader)) == std::vector<int32_t>{7});
}

TEST_CASE("SampleStream: goes on from the first token after the engine's end", "[stream]") {
  StreamFixture f(/*answers=*/false);
  std::string request_id;
  {
    CallContext context(f.client.key());
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    request_id = ReadAccepted(reader);
    f.WaitForSample();
    f.Report(request_id, 0, 7);
    CHECK(ReadTokens(reader).token_index() == 0);
    f.worker.Detach();
    f.engine.Restart();
    CHECK(reader->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  const bool worker_comes_first = GENERATE(true, false);
  if (worker_comes_first) f.worker.Attach(f.engine.WorkerOptions().address);
  CallContext context(f.client.key());
  const Reader reader = f.engine.streaming().SampleStream(context, f.request);
  CHECK(ReadAccepted(reader) == request_id);
  if (!worker_comes_first) f.worker.Attach(f.engine.WorkerOptions().address);
  f.WaitForStream(request_id);
  f.Report(request_id, 0, 7);
  f.Report(request_id, 1, 8);
  std::vector<int32_t> tokens;
  while (tokens.size() < 2) {
    for (const int32_t token : TokensOf(ReadTokens(reader))) tokens.push_back(token);
  }
  CHECK(tokens == std::vector<int32_t>{7, 8});
}

TEST_CASE("SampleStream: a request that Sample refuses is refused with the same code", "[stream]") {
  StreamFixture f(/*answers=*/true);
  v1::SampleStreamResponse response;
  SECTION("a bad request") {
    f.request.set_num_samples(0);
    CallContext context(f.client.key());
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    CHECK_FALSE(reader->Read(&response));
    const absl::Status status = FromGrpcStatus(reader->Finish());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(ErrorField(status) == "num_samples");
  }
  SECTION("another tenant's sampler") {
    CallContext context(f.engine.MakeKey("other"));
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    CHECK_FALSE(reader->Read(&response));
    CHECK(reader->Finish().error_code() == grpc::StatusCode::NOT_FOUND);
  }
  SECTION("a key without the scope") {
    CallContext context(f.engine.MakeKey("default", {"train"}));
    const Reader reader = f.engine.streaming().SampleStream(context, f.request);
    CHECK_FALSE(reader->Read(&response));
    CHECK(reader->Finish().error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
}

TEST_CASE("Sample: the worker gets the next request as sequences of the first one end",
          "[stream]") {
  StreamFixture f(/*answers=*/false, /*max_running_samples=*/4);
  f.sample.set_num_samples(5);
  std::vector<std::string> submitted;
  for (int64_t seq_id = 0; seq_id < 2; ++seq_id) {
    f.sample.set_seq_id(seq_id);
    v1::SampleSubmitResponse response;
    REQUIRE(f.engine.engine().Sample(CallContext(f.client.key()), f.sample, &response).ok());
    submitted.push_back(response.request_id());
  }
  const auto received = [&f] {
    std::vector<std::string> ids;
    for (const v1::EngineMessage& message : f.worker.received()) {
      if (message.has_sample()) ids.push_back(message.sample().request_id());
    }
    return ids;
  };
  while (received().empty()) std::this_thread::yield();
  CHECK(received().size() == 1);
  v1::SampleProgress progress;
  progress.add_ended()->set_request_id(submitted[0]);
  progress.mutable_ended(0)->set_num_ended(1);
  f.worker.Report(progress);
  while (received().size() < 2) std::this_thread::yield();
  CHECK(received() == submitted);
  f.worker.StartAnswering();
  for (const std::string& id : submitted) CHECK_FALSE(f.client.Result(id).has_error());
}

}  // namespace
}  // namespace lathe::engine
