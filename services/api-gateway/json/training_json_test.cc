#include "services/api-gateway/json/training_json.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

TEST_CASE("forward_backward as JSON is read like its protobuf form", "[json]") {
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromJson(
      R"({"forward_backward_input":{"data":[{"model_input":{"chunks":[{"type":"encoded_text",
          "tokens":[1,2,3]}]},"loss_fn_inputs":{"weights":{"data":[0,1,0.5],"dtype":"float32",
          "shape":[3]},"target_tokens":{"data":[2,3,4],"dtype":"int64","shape":[3]}}}],
          "loss_fn":"ppo","loss_fn_config":{"clip_low_threshold":0.9,"b":"text","a":1}},
          "model_id":"m","seq_id":7})",
      /*forward_only=*/false, &request);
  REQUIRE(status.ok());
  CHECK(request.model_id() == "m");
  CHECK(request.seq_id() == 7);
  REQUIRE(request.data_size() == 1);
  REQUIRE(request.data(0).loss_fn_inputs_size() == 2);
  CHECK(request.data(0).loss_fn_inputs(0).name() == "target_tokens");
  const v1::Tensor& weights = request.data(0).loss_fn_inputs(1).tensor();
  CHECK(weights.dtype() == v1::DTYPE_FLOAT32);
  float values[3];
  REQUIRE(weights.dense().size() == sizeof(values));
  std::memcpy(values, weights.dense().data(), sizeof(values));
  CHECK(values[2] == 0.5f);
  CHECK(request.loss().config(0).name() == "a");
  CHECK(request.loss().text_config(0).value() == "text");
}

TEST_CASE("Sparse tensors keep their three parts", "[json]") {
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromJson(
      R"({"forward_input":{"data":[{"model_input":{"chunks":[]},"loss_fn_inputs":{"weights":
          {"data":[1.5],"dtype":"float32","shape":[2,3],"sparse_crow_indices":[0,0,1],
          "sparse_col_indices":[2]}}}],"loss_fn":"cross_entropy"},"model_id":"m","seq_id":1})",
      /*forward_only=*/true, &request);
  REQUIRE(status.ok());
  CHECK(request.forward_only());
  const v1::Tensor& weights = request.data(0).loss_fn_inputs(0).tensor();
  CHECK(weights.sparse_csr().values().size() == 4);
  CHECK(weights.sparse_csr().crow_indices().size() == 24);
  CHECK(weights.sparse_csr().col_indices().size() == 8);
}

TEST_CASE("Provenance spans are read by their type", "[json]") {
  const auto read = [](const std::string& spans, v1::ForwardBackwardRequest* request) {
    return ForwardBackwardFromJson(
        R"({"forward_backward_input":{"data":[{"model_input":{"chunks":[]},"loss_fn_inputs":{},
            "loss_fn_input_spans":)" +
            spans + R"(}],"loss_fn":"stable_reinforce"},"model_id":"m","seq_id":1})",
        /*forward_only=*/false, request);
  };
  v1::ForwardBackwardRequest request;
  REQUIRE(read(R"([{"type":"prompt_tokens","sequence_id":"q","offset":1,"length":2},
                   {"type":"sampled_tokens","sequence_id":"q","length":3}])",
               &request)
              .ok());
  REQUIRE(request.data(0).loss_fn_input_spans_size() == 2);
  CHECK_FALSE(request.data(0).loss_fn_input_spans(0).sampled());
  CHECK(request.data(0).loss_fn_input_spans(0).offset() == 1);
  CHECK(request.data(0).loss_fn_input_spans(1).sampled());
  CHECK(request.data(0).loss_fn_input_spans(1).length() == 3);
  v1::ForwardBackwardRequest other;
  CHECK(ErrorField(read(R"([{"type":"image","sequence_id":"q","length":3}])", &other)) ==
        "/forward_backward_input/data/0/loss_fn_input_spans/0/type");
}

TEST_CASE("A refused body still says whose place in the sequence it takes", "[json]") {
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromJson(
      R"({"forward_backward_input":{"data":[{"model_input":{"chunks":[{"tokens":["x"]}]},
          "loss_fn_inputs":{}}],"loss_fn":"ppo"},"model_id":"m","seq_id":7})",
      /*forward_only=*/false, &request);
  CHECK(ErrorField(status) == "/forward_backward_input/data/0/model_input/chunks/0/tokens/0");
  CHECK(request.model_id() == "m");
  CHECK(request.seq_id() == 7);
}

std::string DatumBody(const std::string& data, const std::string& more = "") {
  return absl::StrCat(R"({"model_id":"m","forward_backward_input":{"loss_fn":"ppo","data":[)", data,
                      "]},", more, R"("seq_id":7})");
}

constexpr char kDatum[] =
    R"({"model_input":{"chunks":[{"type":"encoded_text","tokens":[1,2]}]},"loss_fn_inputs":{}})";

absl::Status Read(const std::string& body, v1::ForwardBackwardRequest* request) {
  return ForwardBackwardFromJson(body, /*forward_only=*/false, request);
}

TEST_CASE("Datums are read one by one, and errors say which", "[json]") {
  v1::ForwardBackwardRequest request;
  REQUIRE(Read(DatumBody(absl::StrCat(kDatum, " ,\n", kDatum, ",", kDatum)), &request).ok());
  CHECK(request.data_size() == 3);
  CHECK(request.data(2).model_input(0).tokens().size() == 8);
  v1::ForwardBackwardRequest other;
  CHECK(ErrorField(Read(DatumBody(absl::StrCat(kDatum, ",3,", kDatum)), &other)) ==
        "/forward_backward_input/data/1");
  CHECK(other.seq_id() == 7);
}

TEST_CASE("What is no JSON is found by its place in the whole body", "[json]") {
  const auto [body, column] = GENERATE(table<std::string, std::string>({
      {DatumBody("\n{\"model_input\":}"), "line 2, column 16"},
      {DatumBody(absl::StrCat(kDatum, "\n,]")), "line 2, column 2"},
      {DatumBody(kDatum, "\n\"a\": tru, "), "line 2, column 9"},
      {DatumBody(kDatum, "\n\"a\": [1,02], "), "line 2, column"},
      {DatumBody(kDatum, "\n\"a\": [1e999], "), "/a/0"},
      {DatumBody(absl::StrCat(kDatum, ",\n{\"a\": NaN}")), "line 2, column 7"},
  }));
  v1::ForwardBackwardRequest request;
  const absl::Status status = Read(body, &request);
  CHECK_THAT(std::string(status.message()), Catch::Contains(column));
  CHECK(request.seq_id() == 0);
}

TEST_CASE("A body without a findable list of datums is read the same", "[json]") {
  std::string body = DatumBody(absl::StrCat(kDatum, ",", kDatum));
  v1::ForwardBackwardRequest expected;
  REQUIRE(Read(body, &expected).ok());
  body.replace(body.find("model_id"), 8, "model\\u005fid");
  body.replace(body.find("\"data\""), 6, "\"dat\\u0061\"");
  v1::ForwardBackwardRequest request;
  REQUIRE(Read(body, &request).ok());
  CHECK(request.SerializeAsString() == expected.SerializeAsString());
  body.replace(body.rfind("[1,2]"), 5, "[1,2.5]");
  CHECK(ErrorField(Read(body, &request)) ==
        "/forward_backward_input/data/1/model_input/chunks/0/tokens/1");
  CHECK(request.seq_id() == 7);
}

TEST_CASE("Depth counts from the root", "[json]") {
  const auto nested = [](int depth) {
    return absl::StrCat(R"({"x":)", std::string(depth, '['), std::string(depth, ']'), "}");
  };
  v1::ForwardBackwardRequest request;
  // Root, input, list and datum are four levels.
  CHECK(ErrorCode(Read(DatumBody(nested(59)), &request)) == "invalid_field");
  CHECK(ErrorCode(Read(DatumBody(nested(61)), &request)) == "too_deep");
}

TEST_CASE("Datums beyond the limit are not kept", "[json]") {
  v1::ForwardBackwardRequest request;
  std::string many = kDatum;
  for (int i = 1; i < 65537; ++i) absl::StrAppend(&many, ",", kDatum);
  const absl::Status status = Read(DatumBody(many), &request);
  CHECK(ErrorCode(status) == "too_many_datums");
  CHECK(request.data_size() == 65536);
  CHECK_THAT(std::string(status.message()), Catch::Contains("limit of 65536"));
}

TEST_CASE("What no parser has memory for is refused with its size", "[json]") {
  const std::string large(17 << 20, ' ');
  v1::ForwardBackwardRequest request;
  const absl::Status datum = Read(DatumBody(absl::StrCat(kDatum, ",{", large, "}")), &request);
  CHECK(ErrorCode(datum) == "body_too_large");
  CHECK_THAT(std::string(datum.message()),
             Catch::Contains("data/1 has 17825794 bytes") && Catch::Contains("16777216"));
  CHECK(request.seq_id() == 7);
  const absl::Status rest = Read(DatumBody(kDatum, large), &request);
  CHECK(ErrorCode(rest) == "body_too_large");
  CHECK_THAT(std::string(rest.message()), Catch::Contains("limit is 4194304"));
  CHECK(ErrorCode(Read(std::string(5 << 20, '['), &request)) == "too_deep");
}

TEST_CASE("Data of many small parts is refused before it fills the memory", "[json]") {
  std::string chunks = R"({"type":"x"})";
  for (int i = 0; i < 60'000; ++i) chunks += R"(,{"type":"x"})";
  const std::string datum =
      absl::StrCat(R"({"model_input":{"chunks":[)", chunks, R"(]},"loss_fn_inputs":{}})");
  std::string data = datum;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&data, ",", datum);
  v1::ForwardBackwardRequest request;
  const absl::Status status = Read(DatumBody(data), &request);
  CHECK(ErrorCode(status) == "too_many_parts");
  CHECK_THAT(std::string(status.message()), Catch::Contains("/forward_backward_input/data"));
  CHECK(request.data_size() < 10);
  CHECK(request.seq_id() == 7);
}

TEST_CASE("A datum of too many values is refused, lists of numbers being one each", "[json]") {
  std::string values = "1";
  for (size_t i = 0; i < (600 << 10); ++i) values += ",1";
  const auto datum = [](const std::string& more) {
    return absl::StrCat(R"({"model_input":{"chunks":[]},"loss_fn_inputs":{},"x":[)", more, "]}");
  };
  v1::ForwardBackwardRequest request;
  CHECK(Read(DatumBody(datum(values)), &request).ok());
  CHECK(ErrorCode(Read(DatumBody(datum("{}," + values)), &request)) == "too_many_values");
  CHECK(request.seq_id() == 7);
  std::string lists = "[1]";
  for (size_t i = 0; i < (600 << 10); ++i) lists += ",[1]";
  CHECK(ErrorCode(Read(DatumBody(datum(lists)), &request)) == "too_many_values");
}

}  // namespace
}  // namespace lathe::gateway
