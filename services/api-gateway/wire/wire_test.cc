// Tests the conversions with the byte strings that the SDK sends.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "libs/common/errors.h"
#include "libs/common/request_bounds.h"
#include "services/api-gateway/wire/wire.h"

namespace lathe::gateway {
namespace {

constexpr char kRequest[] =
    "0a0d73657373313a747261696e3a3010011a640a100a0e0a0c01000000020000000300000012300a"
    "0d7461726765745f746f6b656e73121f0a1802000000000000000300000000000000040000000000"
    "00001802220103121e0a077765696768747312130a0c000000000000803f0000803f180122010322"
    "0d63726f73735f656e74726f7079";
constexpr char kConfig[] = "2a1d0a12636c69705f6c6f775f7468726573686f6c6411cdccccccccccec3f";
constexpr char kConfigField[] =
    "3a1f0a12636c69705f6c6f775f7468726573686f6c64120909cdccccccccccec3f";
constexpr char kTextConfig[] = "3a130a076c6f73735f6964120812066c6f73735f31";
constexpr char kOutput[] =
    "0a0b41727261795265636f7264123f0a0b41727261795265636f7264122e0a086c6f6770726f6273"
    "12220a0c0000c0bf0000c0bf0000c0bf121000000000000000000c00000000000000180118011a13"
    "0a086c6f73733a73756d110000000000000840";

std::string Bytes(const std::string& hex) { return absl::HexStringToBytes(hex); }

template <typename T>
std::string Pack(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

v1::ForwardBackwardRequest Read(const std::string& hex) {
  v1::ForwardBackwardRequest request;
  REQUIRE(ForwardBackwardFromWire(Bytes(hex), &request).ok());
  return request;
}

TEST_CASE("The SDK's forward_backward is read whole", "[wire]") {
  const v1::ForwardBackwardRequest request = Read(kRequest);
  CHECK(request.model_id() == "sess1:train:0");
  CHECK(request.seq_id() == 1);
  CHECK_FALSE(request.forward_only());
  CHECK(request.loss().name() == "cross_entropy");
  REQUIRE(request.data_size() == 1);
  CHECK(request.data(0).model_input(0).tokens() == Pack<int32_t>({1, 2, 3}));
  REQUIRE(request.data(0).loss_fn_inputs_size() == 2);
  const v1::NamedTensor& targets = request.data(0).loss_fn_inputs(0);
  CHECK(targets.name() == "target_tokens");
  CHECK(targets.tensor().dtype() == v1::DTYPE_INT64);
  CHECK(targets.tensor().shape(0) == 3);
  CHECK(targets.tensor().dense() == Pack<int64_t>({2, 3, 4}));
  CHECK(request.data(0).loss_fn_inputs(1).tensor().dense() == Pack<float>({0, 1, 1}));
  CHECK(Read(std::string(kRequest) + "3001").forward_only());
}

TEST_CASE("Field 7 replaces field 5 when it is set", "[wire]") {
  const auto old_form = Read(std::string(kRequest) + kConfig);
  REQUIRE(old_form.loss().config_size() == 1);
  CHECK(old_form.loss().config(0).name() == "clip_low_threshold");
  CHECK(old_form.loss().config(0).value() == 0.9);
  CHECK(Read(std::string(kRequest) + kConfig + kConfigField).loss().config_size() == 1);
  const auto text = Read(std::string(kRequest) + kTextConfig);
  CHECK(text.loss().config_size() == 0);
  CHECK(text.loss().text_config(0).name() == "loss_id");
  CHECK(text.loss().text_config(0).value() == "loss_1");
}

TEST_CASE("Provenance spans keep their kind, place and length", "[wire]") {
  // A second datum with the provenance spans.
  const std::string spans =
      "1a070a050a017118021a0712050a0171180122090a070a017110011801220712050a01711802";
  const v1::Datum datum = Read(std::string(kRequest) + "1a26" + spans).data(1);
  REQUIRE(datum.model_input_spans_size() == 2);
  REQUIRE(datum.loss_fn_input_spans_size() == 2);
  CHECK_FALSE(datum.model_input_spans(0).sampled());
  CHECK(datum.model_input_spans(0).length() == 2);
  CHECK(datum.model_input_spans(1).sampled());
  CHECK(datum.loss_fn_input_spans(0).offset() == 1);
  CHECK(datum.loss_fn_input_spans(0).sequence_id() == "q");
  CHECK(datum.loss_fn_input_spans(1).sampled());
  CHECK(datum.loss_fn_input_spans(1).length() == 2);
}

TEST_CASE("Unknown fields are skipped", "[wire]") {
  tinker_public::ForwardBackwardRequest message;
  message.set_model_id("m");
  auto* datum = message.add_data();
  datum->add_model_input()->mutable_image()->set_data("png");
  std::string body = message.SerializeAsString();
  body += Bytes("a206020801");  // field 100, a message
  v1::ForwardBackwardRequest request;
  REQUIRE(ForwardBackwardFromWire(body, &request).ok());
  CHECK(request.data(0).model_input(0).unsupported() == "image");
}

TEST_CASE("A damaged body is refused with byte and field, its place still known", "[wire]") {
  const std::string whole = Bytes(kRequest);
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromWire(whole.substr(0, 60), &request);
  CHECK(ErrorCode(status) == "bad_proto");
  CHECK(std::string(status.message()) ==
        "protobuf body is damaged at byte 19, in data: length 100 exceeds the 41 bytes left");
  CHECK(request.model_id() == "sess1:train:0");
  CHECK(request.seq_id() == 1);
}

TEST_CASE("A damaged number of a packed field is found", "[wire]") {
  tinker_public::ForwardBackwardRequest message;
  tinker_public::Tensor& tensor = (*message.add_data()->mutable_loss_fn_inputs())["weights"];
  tensor.add_shape(1);
  tensor.add_shape(2);
  std::string body = message.SerializeAsString();
  CHECK(body.substr(body.size() - 2) == "\1\2");
  body.back() = '\x82';  // a varint that goes on
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromWire(body, &request);
  CHECK(std::string(status.message()) ==
        "protobuf body is damaged at byte 19, in data.loss_fn_inputs.value.shape: a varint does "
        "not end");
}

TEST_CASE("No prefix of a body and no single flipped byte brings the parser down", "[wire]") {
  const std::string whole = Bytes(kRequest);
  for (size_t i = 0; i < whole.size(); ++i) {
    v1::ForwardBackwardRequest request;
    ForwardBackwardFromWire(whole.substr(0, i), &request).IgnoreError();
    std::string flipped = whole;
    flipped[i] = static_cast<char>(~flipped[i]);
    const absl::Status status = ForwardBackwardFromWire(flipped, &request);
    CHECK((status.ok() || ErrorCode(status) == "bad_proto"));
  }
}

// Returns a serialized request with model_id "m", seq_id 7 and `fields` behind them.
std::string RequestWith(const std::string& fields) { return Bytes("0a016d1007") + fields; }

// Returns a length-delimited field of a number below 16.
std::string Nested(int number, const std::string& content) {
  std::string size;
  size_t rest = content.size();
  for (; rest >= 0x80; rest >>= 7) size += static_cast<char>(rest | 0x80);
  size += static_cast<char>(rest);
  return static_cast<char>(number << 3 | 2) + size + content;
}

std::string Repeat(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

TEST_CASE("Datums are counted before any is parsed", "[wire]") {
  v1::ForwardBackwardRequest request;
  const std::string empty = Nested(3, "");
  CHECK(ForwardBackwardFromWire(RequestWith(Repeat(empty, kMaxDatums)), &request).ok());
  CHECK(request.data_size() == kMaxDatums);
  request.Clear();
  const absl::Status status =
      ForwardBackwardFromWire(RequestWith(Repeat(empty, kMaxDatums + 1)), &request);
  CHECK(ErrorCode(status) == "too_many_datums");
  CHECK(ErrorField(status) == "data");
  CHECK(std::string(status.message()).find("65536") != std::string::npos);
  CHECK(request.data().empty());
  CHECK(request.model_id() == "m");
  CHECK(request.seq_id() == 7);
}

TEST_CASE("Parts are counted before any is parsed, wherever they are", "[wire]") {
  constexpr int kMany = 8 << 20;
  const std::string fields =
      GENERATE(Nested(3, Repeat(Nested(1, ""), kMany)),  // chunks
               Nested(3, Repeat(Nested(3, ""), kMany)),  // spans
               Nested(3, Repeat(Nested(9, ""), kMany)),  // unknown fields
               Repeat(std::string("\x30\x01", 2), kMany),
               Nested(3, Nested(2, Nested(2, Nested(4, std::string(kMany, 1))))));
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromWire(RequestWith(fields), &request);
  CHECK(ErrorCode(status) == "too_many_parts");
  CHECK(request.data().empty());
  CHECK(request.seq_id() == 7);
}

TEST_CASE("A datum has a bound on its messages, which other datums do not use up", "[wire]") {
  const std::string chunks = Repeat(Nested(1, ""), kMaxDatumMessages);
  v1::ForwardBackwardRequest request;
  CHECK(ForwardBackwardFromWire(RequestWith(Repeat(Nested(3, chunks), 3)), &request).ok());
  request.Clear();
  const std::string more = Nested(3, "") + Nested(3, chunks + Nested(1, ""));
  const absl::Status status = ForwardBackwardFromWire(RequestWith(more), &request);
  CHECK(ErrorCode(status) == "too_many_parts");
  CHECK(std::string(status.message()) ==
        "element 1 of data has more messages than the limit of 65536");
}

TEST_CASE("What a body's parts will take is asked for before they are parsed", "[wire]") {
  v1::ForwardBackwardRequest request;
  int64_t asked = 0;
  const auto refuse = [&asked](int64_t part_bytes) {
    asked = part_bytes;
    return absl::ResourceExhaustedError("no room");
  };
  const std::string body = RequestWith(Repeat(Nested(3, ""), 10));
  CHECK(ForwardBackwardFromWire(body, &request, refuse).message() == "no room");
  CHECK(asked == 10 * kMessagePartBytes + 2 * kFieldPartBytes);
  CHECK(request.data().empty());
}

TEST_CASE("A body of the largest request with two tensors a datum is within the bounds", "[wire]") {
  tinker_public::Datum datum;
  datum.add_model_input()->mutable_encoded_text()->set_tokens("abcd");
  for (const char* name : {"target_tokens", "weights"}) {
    tinker_public::Tensor& tensor = (*datum.mutable_loss_fn_inputs())[name];
    tensor.set_dtype(tinker_public::DTYPE_INT64);
    tensor.set_dense("abcdefgh");
    tensor.add_shape(1);
  }
  const std::string body = RequestWith(Repeat(Nested(3, datum.SerializeAsString()), kMaxDatums));
  v1::ForwardBackwardRequest request;
  CHECK(ForwardBackwardFromWire(body, &request).ok());
  CHECK(request.data_size() == kMaxDatums);
  CHECK(request.data(kMaxDatums - 1).loss_fn_inputs(1).tensor().dense() == "abcdefgh");
}

TEST_CASE("A long damaged body is explained in one pass", "[wire]") {
  const std::string body = RequestWith(Repeat(Nested(3, Nested(1, "")), 60'000) + "\x1a\x05");
  v1::ForwardBackwardRequest request;
  const absl::Status status = ForwardBackwardFromWire(body, &request);
  CHECK(ErrorCode(status) == "bad_proto");
  CHECK(std::string(status.message()).find("in data: length 5 exceeds the 0 bytes left") !=
        std::string::npos);
}

TEST_CASE("forward_backward's output is the SDK's, byte for byte", "[wire]") {
  v1::ForwardBackwardResult result;
  result.add_outputs()->set_logprobs(Pack<float>({-1.5f, -1.5f, -1.5f}));
  v1::NamedNumber* metric = result.add_metrics();
  metric->set_name("loss:sum");
  metric->set_value(3.0);
  metric = result.add_metrics();
  metric->set_name("x:mean");
  metric->set_value(std::nan(""));
  CHECK(ToTinker(result).SerializeAsString() == Bytes(kOutput));
}

TEST_CASE("Runs of equal trailing shape share a record, with byte offsets", "[wire]") {
  v1::ForwardBackwardResult result;
  result.add_outputs()->set_logprobs(Pack<float>({1, 2}));
  result.add_outputs()->set_logprobs(Pack<float>({3}));
  v1::DatumOutput* soft = result.add_outputs();
  soft->set_logprobs(Pack<float>({4, 5, 6, 7}));
  soft->set_num_targets(2);
  result.add_outputs()->set_logprobs(Pack<float>({8}));
  const tinker_public::ForwardBackwardOutput output = ToTinker(result);
  REQUIRE(output.loss_fn_outputs_size() == 3);
  const auto& first = output.loss_fn_outputs(0).fields().at("logprobs");
  CHECK(output.loss_fn_outputs(0).num_datums() == 2);
  CHECK(first.offsets() == Pack<int64_t>({0, 8, 12}));
  CHECK(first.trailing_shape_size() == 0);
  const auto& second = output.loss_fn_outputs(1).fields().at("logprobs");
  CHECK(second.trailing_shape(0) == 2);
  CHECK(second.offsets() == Pack<int64_t>({0, 16}));
  CHECK(output.loss_fn_outputs(2).num_datums() == 1);
}

TEST_CASE("A sample's answer is the SDK's, byte for byte", "[wire]") {
  v1::SampleResult result;
  v1::SampledSequence* sequence = result.add_sequences();
  sequence->set_stopped(true);
  sequence->set_tokens(Pack<int32_t>({5, 6}));
  sequence->set_logprobs(Pack<float>({-0.5f, -0.25f}));
  CHECK(ToTinker(result).SerializeAsString() ==
        Bytes("0a14120805000000060000001a08000000bf000080be"));
  sequence->set_stopped(false);
  CHECK(ToTinker(result).SerializeAsString() ==
        Bytes("0a160801120805000000060000001a08000000bf000080be"));
}

TEST_CASE("Scores of a sample keep dtype, shape and layout", "[wire]") {
  v1::SampleResult result;
  v1::TopkLogprobs* topk = result.add_sequences()->mutable_topk_logprobs();
  topk->set_k(1);
  topk->set_length(1);
  topk->set_token_ids(Pack<int32_t>({4}));
  topk->set_logprobs(Pack<float>({-0.5f}));
  v1::Tensor* targets = result.mutable_target_prompt_logprobs();
  targets->set_dtype(v1::DTYPE_FLOAT32);
  targets->add_shape(1);
  targets->add_shape(3);
  targets->mutable_sparse_csr()->set_values(Pack<float>({-2.5f}));
  targets->mutable_sparse_csr()->set_crow_indices(Pack<int64_t>({0, 1}));
  targets->mutable_sparse_csr()->set_col_indices(Pack<int64_t>({2}));
  v1::PromptAltTokens* drawn = result.mutable_prompt_alt_tokens();
  drawn->mutable_tokens()->set_dtype(v1::DTYPE_INT32);
  drawn->mutable_tokens()->set_dense(Pack<int32_t>({8}));
  drawn->mutable_logprobs()->set_dtype(v1::DTYPE_FLOAT32);
  drawn->mutable_logprobs()->set_dense(Pack<float>({-3.0f}));

  const tinker_public::SampleResponse response = ToTinker(result);
  const tinker_public::TopkLogprobs& row = response.sequences(0).topk_sampled_logprobs();
  CHECK(row.k() == 1);
  CHECK(row.length() == 1);
  CHECK(row.token_ids() == topk->token_ids());
  CHECK(row.logprobs() == topk->logprobs());
  const tinker_public::Tensor& scored = response.target_prompt_logprobs();
  CHECK(scored.dtype() == tinker_public::DTYPE_FLOAT32);
  CHECK(std::vector<int64_t>(scored.shape().begin(), scored.shape().end()) ==
        std::vector<int64_t>{1, 3});
  CHECK(scored.sparse_csr().values() == targets->sparse_csr().values());
  CHECK(scored.sparse_csr().crow_indices() == targets->sparse_csr().crow_indices());
  CHECK(scored.sparse_csr().col_indices() == targets->sparse_csr().col_indices());
  CHECK(response.prompt_alt_tokens().tokens().dtype() == tinker_public::DTYPE_INT32);
  CHECK(response.prompt_alt_tokens().tokens().dense() == Pack<int32_t>({8}));
  CHECK(response.prompt_alt_tokens().logprobs().dense() == Pack<float>({-3.0f}));
}

}  // namespace
}  // namespace lathe::gateway
