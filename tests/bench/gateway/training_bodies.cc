#include "tests/bench/gateway/training_bodies.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::gateway {
namespace {

constexpr int32_t kVocabSize = 151936;

struct DatumValues {
  std::vector<int32_t> tokens;
  std::vector<int64_t> targets;
  std::vector<float> logprobs;
  std::vector<float> advantages;
};

std::vector<DatumValues> DrawValues(const TrainingShape& shape) {
  std::mt19937 rng(1);
  std::uniform_int_distribution<int32_t> token(0, kVocabSize - 1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<DatumValues> data(shape.num_datums);
  for (DatumValues& datum : data) {
    for (int64_t i = 0; i < shape.datum_tokens; ++i) {
      datum.tokens.push_back(token(rng));
      datum.targets.push_back(token(rng));
      datum.logprobs.push_back(-5 * uniform(rng));
      // Round to four digits, like an advantage from a mean of rewards.
      datum.advantages.push_back(std::round(uniform(rng) * 1e4f) * 1e-4f);
    }
  }
  return data;
}

template <typename T>
std::string Packed(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string FloatList(const std::vector<float>& values, int num_digits) {
  return absl::StrJoin(values, ",", [num_digits](std::string* out, float value) {
    absl::StrAppendFormat(out, "%.*g", num_digits, value);
  });
}

std::string TensorJson(const std::string& list, const char* dtype, size_t size) {
  return absl::StrCat(R"({"data":[)", list, R"(],"dtype":")", dtype, R"(","shape":[)", size, "]}");
}

void AddTensor(const char* name, tinker_public::DType dtype, std::string dense,
               tinker_public::Datum* datum) {
  tinker_public::Tensor& tensor = (*datum->mutable_loss_fn_inputs())[name];
  tensor.set_dtype(dtype);
  tensor.set_dense(std::move(dense));
}

}  // namespace

std::string TrainingJson(const TrainingShape& shape) {
  std::string text =
      R"({"forward_backward_input":{"loss_fn":"importance_sampling","loss_fn_config":null,"data":[)";
  const char* separator = "";
  for (const DatumValues& datum : DrawValues(shape)) {
    const size_t size = datum.tokens.size();
    absl::StrAppend(&text, separator,
                    R"({"model_input":{"chunks":[{"type":"encoded_text","tokens":[)",
                    absl::StrJoin(datum.tokens, ","), R"(]}]},"loss_fn_inputs":{"target_tokens":)",
                    TensorJson(absl::StrJoin(datum.targets, ","), "int64", size), R"(,"logprobs":)",
                    TensorJson(FloatList(datum.logprobs, 9), "float32", size), R"(,"advantages":)",
                    TensorJson(FloatList(datum.advantages, 4), "float32", size), "}}");
    separator = ",";
  }
  absl::StrAppend(&text, R"(]},"model_id":"bench:train:0","seq_id":1})");
  return text;
}

std::string TrainingProtobuf(const TrainingShape& shape) {
  tinker_public::ForwardBackwardRequest message;
  message.set_model_id("bench:train:0");
  message.set_seq_id(1);
  message.set_loss_fn("importance_sampling");
  for (const DatumValues& values : DrawValues(shape)) {
    tinker_public::Datum* datum = message.add_data();
    datum->add_model_input()->mutable_encoded_text()->set_tokens(Packed(values.tokens));
    AddTensor("target_tokens", tinker_public::DTYPE_INT64, Packed(values.targets), datum);
    AddTensor("logprobs", tinker_public::DTYPE_FLOAT32, Packed(values.logprobs), datum);
    AddTensor("advantages", tinker_public::DTYPE_FLOAT32, Packed(values.advantages), datum);
  }
  return message.SerializeAsString();
}

v1::ForwardBackwardResult LogprobsResult(int64_t num_logprobs, int64_t datum_tokens) {
  std::mt19937 rng(2);
  std::uniform_real_distribution<float> uniform(-5, 0);
  v1::ForwardBackwardResult result;
  for (int64_t begin = 0; begin < num_logprobs; begin += datum_tokens) {
    std::vector<float> logprobs(std::min(datum_tokens, num_logprobs - begin));
    for (float& logprob : logprobs) logprob = uniform(rng);
    result.add_outputs()->set_logprobs(Packed(logprobs));
  }
  v1::NamedNumber* loss = result.add_metrics();
  loss->set_name("loss:sum");
  loss->set_value(1.5);
  return result;
}

}  // namespace lathe::gateway
