#include "services/api-gateway/json/sampling_json.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

std::string Body(const std::string& stop, const std::string& more = "") {
  return R"({"num_samples":2,"prompt":{"chunks":[{"tokens":[1,2],"type":"encoded_text"},
      {"tokens":[],"type":"encoded_text"}]},"sampling_params":{"max_tokens":4,"seed":3)" +
         stop + R"(,"temperature":0.7,"top_k":-1,"top_p":1.0},
      "sampling_session_id":"s:sample:0","seq_id":9000000000000000000,"prompt_logprobs":false,
      "topk_prompt_logprobs":0)" +
         more + R"(,"type":"sample"})";
}

std::vector<int32_t> Tokens(const std::string& packed) {
  std::vector<int32_t> tokens(packed.size() / 4);
  std::memcpy(tokens.data(), packed.data(), packed.size());
  return tokens;
}

TEST_CASE("asample of the SDK is read whole", "[json]") {
  const auto request = SampleFromJson(Body(
      "", R"(,"topk_sample_logprobs":0,"prompt_alt_tokens_k":0,"record_stability_info":true)"));
  REQUIRE(request.ok());
  CHECK(request->num_samples() == 2);
  CHECK(request->seq_id() == 9000000000000000000);
  REQUIRE(request->prompt_size() == 2);
  CHECK(Tokens(request->prompt(0).tokens()) == std::vector<int32_t>{1, 2});
  CHECK(request->prompt(1).chunk_case() == v1::Chunk::kTokens);
  CHECK(request->params().max_tokens() == 4);
  CHECK(request->params().seed() == 3);
  CHECK(request->params().temperature() == 0.7);
  CHECK(request->params().top_k() == -1);
  CHECK(request->params().stop_case() == v1::SamplingParams::STOP_NOT_SET);
  CHECK(request->unsupported_options_size() == 0);
  CHECK(request->record_stability_info());
}

TEST_CASE("stop is a string, a list of strings, a list of tokens, or an empty list", "[json]") {
  CHECK(SampleFromJson(Body(R"(,"stop":"\n")"))->params().stop_strings().values(0) == "\n");
  CHECK(SampleFromJson(Body(R"(,"stop":["a","b"])"))->params().stop_strings().values_size() == 2);
  CHECK(SampleFromJson(Body(R"(,"stop":[5,6])"))->params().stop_tokens().values(1) == 6);
  const auto empty = SampleFromJson(Body(R"(,"stop":[])"));
  CHECK(empty->params().stop_case() == v1::SamplingParams::kStopStrings);
  CHECK(SampleFromJson(Body(R"(,"stop":null)"))->params().stop_case() ==
        v1::SamplingParams::STOP_NOT_SET);
  CHECK_FALSE(SampleFromJson(Body(R"(,"stop":[1,"a"])")).ok());
  CHECK_FALSE(SampleFromJson(Body(R"(,"stop":["a",1])")).ok());
}

TEST_CASE("Scores that are asked for are read", "[json]") {
  const auto request = SampleFromJson(
      Body(R"(,"min_p":0.05)",
           R"(,"topk_sample_logprobs":5,"prompt_alt_tokens_k":2,"prompt_logprobs_last_n":1,
              "target_prompt_logprobs":{"data":[7,-1],"dtype":"int64","shape":[1,2]})"));
  REQUIRE(request.ok());
  CHECK(request->params().min_p() == 0.05);
  CHECK(request->topk_sample_logprobs() == 5);
  CHECK(request->prompt_alt_tokens_k() == 2);
  CHECK(request->prompt_logprobs_last_n() == 1);
  CHECK(request->target_prompt_logprobs().dtype() == v1::DTYPE_INT64);
  CHECK(request->target_prompt_logprobs().shape_size() == 2);
  CHECK(request->target_prompt_logprobs().dense().size() == 16);
  const auto unset = SampleFromJson(Body(
      "", R"(,"prompt_logprobs_last_n":null,"target_prompt_logprobs":null,"base_model":null)"));
  REQUIRE(unset.ok());
  CHECK(unset->params().min_p() == 0);
  CHECK_FALSE(unset->has_prompt_logprobs_last_n());
  CHECK_FALSE(unset->has_target_prompt_logprobs());
  CHECK(unset->unsupported_options_size() == 0);
}

TEST_CASE("Sparse targets are read as CSR", "[json]") {
  const auto request = SampleFromJson(
      Body("", R"(,"target_prompt_logprobs":{"data":[7],"dtype":"int64","shape":[1,2],
              "sparse_crow_indices":[0,1],"sparse_col_indices":[1]})"));
  REQUIRE(request.ok());
  const v1::SparseCsr& sparse = request->target_prompt_logprobs().sparse_csr();
  CHECK(sparse.values().size() == 8);
  CHECK(sparse.crow_indices().size() == 16);
  CHECK(sparse.col_indices().size() == 8);
}

TEST_CASE("Options that are not offered are passed on by name", "[json]") {
  const auto request =
      SampleFromJson(Body("", R"(,"base_model":"b","model_path":"tinker://m/weights/x")"));
  REQUIRE(request.ok());
  CHECK(request->unsupported_options_size() == 2);
}

TEST_CASE("Chunks of other kinds are passed on by name", "[json]") {
  const auto request = SampleFromJson(
      R"({"prompt":{"chunks":[{"type":"image","data":"aGk=","format":"png"}]},
          "sampling_params":{},"sampling_session_id":"s","seq_id":0})");
  REQUIRE(request.ok());
  CHECK(request->prompt(0).unsupported() == "image");
  CHECK(request->num_samples() == 1);
}

TEST_CASE("A faulty asample is refused with the place", "[json]") {
  const auto [body, word, field] = GENERATE(table<std::string, std::string, std::string>({
      {R"({"prompt":)", "bad_json", ""},
      {R"([])", "invalid_field", ""},
      {R"({})", "invalid_field", "/prompt"},
      {R"({"prompt":{"chunks":[{"tokens":[1,2147483648]}]},"sampling_session_id":"s","seq_id":0})",
       "invalid_field", "/prompt/chunks/0/tokens/1"},
      {R"({"prompt":{"chunks":[{"tokens":[1,null]}]},"sampling_session_id":"s","seq_id":0})",
       "invalid_field", "/prompt/chunks/0/tokens/1"},
      {R"({"prompt":{"chunks":[{"tokens":[1,[2]]}]},"sampling_session_id":"s","seq_id":0})",
       "invalid_field", "/prompt/chunks/0/tokens/1"},
      {R"({"prompt":{"chunks":[{"tokens":[1,,2]}]},"sampling_session_id":"s","seq_id":0})",
       "bad_json", ""},
      {Body("", R"(,"unknown":[1,02])"), "bad_json", ""},
      {Body("", R"(,"unknown":[1,1e999])"), "bad_number", "/unknown/1"},
      {Body(R"(,"stop":[1,2147483648])"), "invalid_field", "/sampling_params/stop/1"},
      {R"({"prompt":{"chunks":[]},"sampling_session_id":"s","seq_id":0,"seq_id":1})",
       "duplicate_key", "/seq_id"},
      {R"({"prompt":{"chunks":[]},"sampling_session_id":"s","seq_id":"0","sampling_params":{}})",
       "invalid_field", "/seq_id"},
      {Body("", R"(,"target_prompt_logprobs":{"data":[1.5],"dtype":"int64"})"), "invalid_field",
       "/target_prompt_logprobs/data/0"},
      {Body("", R"(,"target_prompt_logprobs":[1])"), "invalid_field", "/target_prompt_logprobs"},
      {Body(R"(,"min_p":null)"), "invalid_field", "/sampling_params/min_p"},
  }));
  const auto request = SampleFromJson(body);
  CHECK(ErrorCode(request.status()) == word);
  CHECK(ErrorField(request.status()) == field);
}

TEST_CASE("A faulty list of numbers is refused with value or count, and the bound", "[json]") {
  const auto message = [](const std::string& more) {
    return std::string(SampleFromJson(Body("", more)).status().message());
  };
  CHECK(message(R"(,"target_prompt_logprobs":{"data":[1, 2.5 ],"dtype":"int64"})") ==
        "field /target_prompt_logprobs/data/1: expected a 64-bit integer, got 2.5");
  CHECK(message(R"(,"target_prompt_logprobs":{"data":[7,true],"dtype":"int64"})") ==
        "field /target_prompt_logprobs/data/1: expected a 64-bit integer, got boolean");
  CHECK(message(R"(,"target_prompt_logprobs":{"data":[],"dtype":"int64",
                   "shape":[1,2,3,4,5,6,7,8,9]})") ==
        "field /target_prompt_logprobs/shape has 9 numbers, limit is 8");
  std::string many = "1";
  for (int i = 0; i < 4 << 20; ++i) many += ",1";
  CHECK(message(absl::StrCat(R"(,"target_prompt_logprobs":{"data":[)", many,
                             R"(],"dtype":"int64"})")) ==
        "field /target_prompt_logprobs/data has 4194305 numbers, limit is 4194304");
}

TEST_CASE("Unknown lists do not disturb the others", "[json]") {
  const auto request =
      SampleFromJson(Body("", R"(,"unknown":[1,"],"],"more":[[3,4],[0,{"a":[5]}]])"));
  REQUIRE(request.ok());
  CHECK(Tokens(request->prompt(0).tokens()) == std::vector<int32_t>{1, 2});
}

TEST_CASE("Deep nesting in a large body is refused", "[json]") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  CHECK(ErrorCode(SampleFromJson(deep).status()) == "too_deep");
}

TEST_CASE("The future of a sample carries its sequence ids", "[json]") {
  v1::SampleSubmitResponse response;
  response.set_request_id("r6");
  response.add_sample_sequence_ids("s:0:0");
  CHECK(SampleFutureToJson(response).dump() ==
        R"({"request_id":"r6","sample_sequence_ids":["s:0:0"]})");
}

}  // namespace
}  // namespace lathe::gateway
