// Sampling, names, paths, lifetimes, metadata and pages.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "libs/common/errors.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validate_sampling.h"

namespace lathe::engine {
namespace {

constexpr ModelLimits kLimits{.max_context_length = 16, .vocab_size = 100};

v1::SampleRequest Sample() {
  v1::SampleRequest request;
  const std::vector<int32_t> tokens = {1, 2, 3};
  request.add_prompt()->set_tokens(
      std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4));
  request.add_prompt()->set_tokens("");
  request.set_num_samples(1);
  request.mutable_params()->set_temperature(1);
  request.mutable_params()->set_top_k(-1);
  request.mutable_params()->set_top_p(1);
  return request;
}

std::string Packed(const std::vector<int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)};
}

v1::Tensor Targets(const std::vector<int64_t>& ids, const std::vector<int64_t>& shape) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_INT64);
  for (const int64_t dim : shape) tensor.add_shape(dim);
  tensor.set_dense(Packed(ids));
  return tensor;
}

TEST_CASE("asample: the bounds themselves are allowed", "[validate]") {
  v1::SampleRequest request = Sample();
  CHECK(*ValidateSample(request, kLimits) == 3);
  request.set_num_samples(1024);
  request.mutable_params()->set_temperature(0);
  request.mutable_params()->set_top_k(1);
  request.mutable_params()->set_top_p(0.01);
  request.mutable_params()->set_max_tokens(13);
  request.mutable_params()->mutable_stop_strings();
  request.mutable_params()->set_min_p(1);
  request.set_topk_prompt_logprobs(128);
  request.set_prompt_alt_tokens_k(128);
  request.set_prompt_logprobs(true);
  request.set_prompt_logprobs_last_n(2);
  *request.mutable_target_prompt_logprobs() = Targets({-1, 99}, {2, 1});
  CHECK(ValidateSample(request, kLimits).ok());
  request.set_topk_sample_logprobs(128);
  CHECK(ValidateSample(request, kLimits).ok());
  for (int i = 0; i < 64; ++i) request.mutable_params()->mutable_stop_tokens()->add_values(99);
  CHECK(ValidateSample(request, kLimits).ok());
}

TEST_CASE("asample: a stop string may be any bytes", "[validate]") {
  v1::SampleRequest request = Sample();
  request.mutable_params()->mutable_stop_strings()->add_values("\xff\xfe");
  v1::SampleRequest parsed;
  REQUIRE(parsed.ParseFromString(request.SerializeAsString()));
  CHECK(parsed.params().stop_strings().values(0) == "\xff\xfe");
  CHECK(ValidateSample(parsed, kLimits).ok());
}

TEST_CASE("asample: targets may be sparse", "[validate]") {
  v1::SampleRequest request = Sample();
  v1::Tensor* targets = request.mutable_target_prompt_logprobs();
  targets->set_dtype(v1::DTYPE_INT64);
  targets->add_shape(2);
  targets->add_shape(7);
  targets->mutable_sparse_csr()->set_values(Packed({5, -1}));
  targets->mutable_sparse_csr()->set_crow_indices(Packed({0, 1, 2}));
  targets->mutable_sparse_csr()->set_col_indices(Packed({6, 0}));
  CHECK(ValidateSample(request, kLimits).ok());
  targets->mutable_sparse_csr()->set_col_indices(Packed({7, 0}));
  CHECK(ErrorCode(ValidateSample(request, kLimits).status()) == "bad_sparse");
}

TEST_CASE("asample: every value out of range is refused by name", "[validate]") {
  using Request = v1::SampleRequest;
  struct Row {
    std::function<void(Request&)> spoil;
    const char* code;
    const char* message;
  };
  const std::vector<Row> rows = {
      {[](Request& r) { r.set_num_samples(0); }, "invalid_field",
       "num_samples is 0, expected 1 to 1024"},
      {[](Request& r) { r.set_num_samples(1'000'000'000); }, "invalid_field",
       "num_samples is 1000000000"},
      {[](Request& r) { r.mutable_params()->set_temperature(-0.1); }, "invalid_field",
       "temperature is -0.1"},
      {[](Request& r) { r.mutable_params()->set_temperature(NAN); }, "invalid_field",
       "temperature is nan"},
      {[](Request& r) { r.mutable_params()->set_top_p(0); }, "invalid_field", "top_p is 0"},
      {[](Request& r) { r.mutable_params()->set_top_p(1.5); }, "invalid_field", "top_p is 1.5"},
      {[](Request& r) { r.mutable_params()->set_top_p(NAN); }, "invalid_field", "top_p is nan"},
      {[](Request& r) { r.mutable_params()->set_top_k(-2); }, "invalid_field", "top_k is -2"},
      {[](Request& r) { r.mutable_params()->set_top_k(0); }, "invalid_field", "top_k is 0"},
      {[](Request& r) { r.mutable_params()->set_max_tokens(0); }, "invalid_field",
       "max_tokens is 0"},
      {[](Request& r) { r.set_topk_prompt_logprobs(129); }, "invalid_field",
       "topk_prompt_logprobs is 129, expected 0 to 128"},
      {[](Request& r) { r.set_topk_prompt_logprobs(-1); }, "invalid_field", "is -1"},
      {[](Request& r) { r.set_topk_sample_logprobs(129); }, "invalid_field",
       "topk_sample_logprobs is 129, expected 0 to 128"},
      {[](Request& r) { r.set_prompt_alt_tokens_k(-1); }, "invalid_field",
       "prompt_alt_tokens_k is -1, expected 0 to 128"},
      {[](Request& r) { r.mutable_params()->set_min_p(1.5); }, "invalid_field", "min_p is 1.5"},
      {[](Request& r) { r.mutable_params()->set_min_p(-0.1); }, "invalid_field", "min_p is -0.1"},
      {[](Request& r) { r.mutable_params()->set_min_p(NAN); }, "invalid_field", "min_p is nan"},
      {[](Request& r) { r.mutable_params()->set_temperature(INFINITY); }, "invalid_field",
       "temperature is inf"},
      {[](Request& r) { r.set_prompt_logprobs_last_n(1); }, "invalid_field",
       "prompt_logprobs_last_n is 1, but prompt_logprobs is false"},
      {[](Request& r) {
         r.set_prompt_logprobs(true);
         r.set_prompt_logprobs_last_n(0);
       },
       "invalid_field", "prompt_logprobs_last_n is 0, expected 1 to 2"},
      {[](Request& r) {
         r.set_prompt_logprobs(true);
         r.set_prompt_logprobs_last_n(3);
       },
       "invalid_field", "prompt_logprobs_last_n is 3, expected 1 to 2"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({1, 2, 3}, {3, 1});
       },
       "bad_tensor", "target_prompt_logprobs has 3 rows in 2 dimensions, expected 2 rows in 2"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({1, 2}, {2});
       },
       "bad_tensor", "has 2 rows in 1 dimensions"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({1, 2, 3}, {2, 1});
       },
       "bad_tensor", "24 bytes do not make a int64 tensor of shape [2, 1]"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({1, 2}, {2, 1});
         r.mutable_target_prompt_logprobs()->set_dtype(v1::DTYPE_FLOAT32);
       },
       "bad_tensor", "dtype is float32, expected int64"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({1, 100}, {2, 1});
       },
       "bad_token", "token at position 1 is 100, expected -1 or one below the vocabulary size"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({-2, 1}, {2, 1});
       },
       "bad_token", "position 0 is -2"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({-1, -1}, {2, 1});
       },
       "invalid_field", "names no token id in 2 cells, expected at least 1"},
      {[](Request& r) {
         *r.mutable_target_prompt_logprobs() = Targets({}, {2, 0});
       },
       "invalid_field", "names no token id in 0 cells"},
      {[](Request& r) {
         for (int i = 0; i < 65; ++i) r.mutable_params()->mutable_stop_tokens()->add_values(1);
       },
       "invalid_field", "has 65 tokens, limit is 64"},
      {[](Request& r) { r.clear_prompt(); }, "empty_prompt", "prompt has no tokens"},
      {[](Request& r) { r.add_prompt()->set_unsupported("image"); }, "unsupported_chunk",
       "'image'"},
      {[](Request& r) { r.mutable_prompt(0)->set_tokens(std::string(4, '\x7f')); }, "bad_token",
       "prompt: token at position 0"},
      {[](Request& r) { r.mutable_params()->set_max_tokens(14); }, "too_long",
       "Prompt length plus max_tokens exceeds the model's context window: 3 prompt tokens + 14 "
       "max_tokens > 16."},
      {[](Request& r) { r.mutable_params()->set_max_tokens(INT64_MAX); }, "too_long",
       "Prompt length plus max_tokens"},
      {[](Request& r) { r.mutable_prompt(0)->set_tokens(std::string(64, '\0')); }, "too_long",
       "16 prompt tokens + 1 max_tokens > 16."},
      {[](Request& r) { r.add_unsupported_options("prompt_alt_tokens_k"); }, "unsupported_option",
       "prompt_alt_tokens_k"},
      {[](Request& r) { r.mutable_params()->mutable_stop_strings()->add_values(""); },
       "invalid_field", "stop[0] has 0 bytes"},
      {[](Request& r) {
         r.mutable_params()->mutable_stop_strings()->add_values(std::string(1025, 'x'));
       },
       "invalid_field", "stop[0] has 1025 bytes, expected 1 to 1024"},
      {[](Request& r) {
         for (int i = 0; i < 65; ++i) r.mutable_params()->mutable_stop_strings()->add_values("x");
       },
       "invalid_field", "has 65 strings, limit is 64"},
      {[](Request& r) { r.mutable_params()->mutable_stop_tokens()->add_values(100); }, "bad_token",
       "stop[0] is 100"},
  };
  for (const Row& row : rows) {
    Request request = Sample();
    row.spoil(request);
    const absl::Status status = ValidateSample(request, kLimits).status();
    INFO(row.message);
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(ErrorCode(status) == row.code);
    CHECK_THAT(std::string(status.message()), Catch::Contains(row.message));
  }
}

TEST_CASE("asample: the size of a result is bounded", "[validate]") {
  const ModelLimits limits{.max_context_length = 100'000, .vocab_size = 100};
  v1::SampleRequest request = Sample();
  request.set_num_samples(1024);
  request.mutable_params()->set_max_tokens(64);
  request.set_topk_sample_logprobs(128);
  CHECK(ValidateSample(request, limits).ok());
  request.mutable_params()->set_max_tokens(65);
  CHECK(ValidateSample(request, limits).status().message() ==
        "topk_sample_logprobs asks for 8519680 logprobs (num_samples * max_tokens * k), limit is "
        "8388608");
  // Without max_tokens, the rest of the context counts.
  request.set_num_samples(1);
  request.mutable_params()->clear_max_tokens();
  CHECK_THAT(std::string(ValidateSample(request, limits).status().message()),
             Catch::Contains("asks for 12799616 logprobs"));
  v1::SampleRequest scores = Sample();
  scores.mutable_prompt(0)->set_tokens(std::string(4 * 65'537, '\0'));
  for (const bool alternatives : {false, true}) {
    scores.set_topk_prompt_logprobs(alternatives ? 0 : 128);
    scores.set_prompt_alt_tokens_k(alternatives ? 128 : 0);
    CHECK_THAT(std::string(ValidateSample(scores, limits).status().message()),
               Catch::Contains("asks for 8388736 logprobs (prompt tokens * k)"));
  }
}

TEST_CASE("names: only plain ones pass", "[validate]") {
  for (const std::string& good : {std::string("final"), std::string("000020"),
                                  std::string("a.b-C_9"), std::string(128, 'x')}) {
    CHECK(ValidateName(good, "path").ok());
  }
  for (const std::string& bad : {std::string(), std::string(".x"), std::string("a/b"),
                                 std::string(".."), std::string("a\0b", 3), std::string("a b"),
                                 std::string("\xe2\x80\xae"), std::string(129, 'x')}) {
    CHECK(ErrorCode(ValidateName(bad, "path")) == "bad_name");
  }
}

TEST_CASE("paths: three parts of a known kind", "[validate]") {
  CHECK(ValidateTinkerPath("tinker://s:train:0/weights/a", "path").ok());
  CHECK(ValidateTinkerPath("tinker://s:train:0/sampler_weights/a", "path").ok());
  CHECK(ValidateTinkerPath("tinker://s:train:0/external_weights/a", "path").ok());
  for (const char* bad : {"", "tinker://", "tinker://s/a", "tinker://s/weights/", "s/weights/a",
                          "tinker://s/other_weights/a", "tinker://s/weights/a/b",
                          "tinker:///weights/a", "tinker://s/weights/.."}) {
    INFO(bad);
    CHECK(ErrorCode(ValidateTinkerPath(bad, "path")) == "bad_path");
  }
}

TEST_CASE("ttl: from a second to ten years", "[validate]") {
  CHECK(ValidateTtl(1).ok());
  CHECK(ValidateTtl(int64_t{10} * 365 * 24 * 3600).ok());
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{11} * 365 * 24 * 3600}) {
    CHECK(ErrorCode(ValidateTtl(bad)) == "bad_ttl");
  }
}

TEST_CASE("metadata: sorted, bounded, no name twice", "[validate]") {
  v1::CreateSessionRequest request;
  const auto add = [&](const std::string& name, const std::string& value) {
    v1::NamedString* entry = request.add_user_metadata();
    entry->set_name(name);
    entry->set_value(value);
  };
  add("b", "2");
  add("a", "1");
  CHECK(*ValidateMetadata(request.user_metadata()) == Metadata{{"a", "1"}, {"b", "2"}});
  SECTION("twice") { add("a", "3"); }
  SECTION("too large") { add("c", std::string(16 * 1024, 'x')); }
  SECTION("too many") {
    for (int i = 0; i < 63; ++i) add("k" + std::to_string(i), "");
  }
  CHECK(ErrorCode(ValidateMetadata(request.user_metadata()).status()) == "bad_metadata");
}

TEST_CASE("pages and numbers out of range are refused", "[validate]") {
  CHECK(ValidatePage(1000, 5)->limit == 1000);
  CHECK(ValidatePage(0, 0)->limit == 20);
  for (const int64_t limit : {int64_t{-1}, int64_t{1001}, int64_t{1'000'000'000}}) {
    CHECK(ErrorCode(ValidatePage(limit, 0).status()) == "bad_page");
  }
  CHECK(ErrorCode(ValidatePage(1, -1).status()) == "bad_page");
  CHECK(ErrorCode(ValidateSeq(-1, "seq_id")) == "bad_seq_id");
  CHECK(ValidateSeq(INT64_MAX, "seq_id").ok());
  CHECK(ValidateTrainSeq(0).ok());
  CHECK(ValidateTrainSeq(INT32_MAX).ok());
  CHECK(ErrorCode(ValidateTrainSeq(-1)) == "bad_seq_id");
  CHECK(ValidateTrainSeq(int64_t{INT32_MAX} + 1).message() ==
        "seq_id is 2147483648, expected 0 to 2147483647");
  CHECK(ErrorCode(ValidateText("abc", 2, "detail")) == "invalid_field");
}

}  // namespace
}  // namespace lathe::engine
