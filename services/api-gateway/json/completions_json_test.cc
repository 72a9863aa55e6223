#include "services/api-gateway/json/completions_json.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

constexpr absl::Duration kHold = absl::Seconds(20);

absl::StatusOr<v1::AwaitSamplesRequest> Read(const char* text) {
  return AwaitSamplesFromJson(text, kHold);
}

TEST_CASE("CompletionsJson: a poll as the SDK sends it", "[json]") {
  const auto request =
      Read(R"({"target":{"type":"sampling_session","sampling_session_id":"s:sample:0",)"
           R"("cloned_sampler_id":3},"prev_cursor":9,"retrieved_request_ids":["r1","r2"]})");
  REQUIRE(request.ok());
  CHECK(request->sampling_session_id() == "s:sample:0");
  CHECK(request->clone_number() == 3);
  CHECK(request->cursor() == 9);
  CHECK(request->wait_ms() == 20'000);
  CHECK(request->retrieved_request_ids_size() == 2);
}

TEST_CASE("CompletionsJson: what is left out has a default", "[json]") {
  const auto request = Read(R"({"target":{"sampling_session_id":"s"},"timeout":null})");
  REQUIRE(request.ok());
  CHECK(request->clone_number() == 0);
  CHECK(request->cursor() == 0);
  CHECK(request->wait_ms() == 20'000);
}

TEST_CASE("CompletionsJson: a timeout shortens the hold, and no more", "[json]") {
  const auto wait = [](const char* timeout) {
    const std::string body =
        std::string(R"({"target":{"sampling_session_id":"s"},"timeout":)") + timeout + "}";
    return Read(body.c_str())->wait_ms();
  };
  CHECK(wait("0") == 0);
  CHECK(wait("0.0") == 0);
  CHECK(wait("1.5") == 1500);
  CHECK(wait("1e300") == 20'000);
}

TEST_CASE("CompletionsJson: what cannot be read is named", "[json]") {
  const auto [body, pointer] = GENERATE(table<const char*, const char*>(
      {{R"({})", "/target/sampling_session_id"},
       {R"({"target":5})", "/target"},
       {R"({"target":{"type":"model","sampling_session_id":"s"}})", "/target/type"},
       {R"({"target":{"sampling_session_id":"s","cloned_sampler_id":"0"}})",
        "/target/cloned_sampler_id"},
       {R"({"target":{"sampling_session_id":"s"},"prev_cursor":0.5})", "/prev_cursor"},
       {R"({"target":{"sampling_session_id":"s"},"timeout":-1})", "/timeout"},
       {R"({"target":{"sampling_session_id":"s"},"timeout":"0"})", "/timeout"},
       {R"({"target":{"sampling_session_id":"s"},"retrieved_request_ids":"r"})",
        "/retrieved_request_ids"},
       {R"({"target":{"sampling_session_id":"s"},"retrieved_request_ids":[1]})",
        "/retrieved_request_ids"}}));
  INFO(body);
  const absl::Status status = Read(body).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains(pointer));
}

TEST_CASE("CompletionsJson: each sample says how it ended", "[json]") {
  v1::AwaitSamplesResponse response;
  response.set_cursor(12);
  v1::EndedSample* sample = response.add_samples();
  sample->set_request_id("r1");
  sample->set_result_bytes(100);
  sample = response.add_samples();
  sample->set_request_id("r2");
  sample->set_failed(true);
  sample->set_result_bytes(50);
  response.add_samples()->set_request_id("r3");
  CHECK(AwaitSamplesToJson(response) ==
        Json::parse(R"({"completions":[)"
                    R"({"state":"finished","request_id":"r1",)"
                    R"("response_payload_uncompressed_size":100},)"
                    R"({"state":"failed","request_id":"r2"},)"
                    R"({"state":"finished","request_id":"r3"}],"cursor":12})"));
  CHECK(AwaitSamplesToJson(v1::AwaitSamplesResponse())["completions"].is_array());
}

}  // namespace
}  // namespace lathe::gateway
