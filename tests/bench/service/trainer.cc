#include "tests/bench/service/trainer.h"

#include <boost/asio/use_awaitable.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/common/strings/string_view.h"
#include "protos/tinker/tinker_public.pb.h"

namespace lathe::bench {
namespace {

std::string TensorJson(const std::string& value, const char* dtype, int64_t size) {
  const std::vector<std::string> values(static_cast<size_t>(size), value);
  return absl::StrCat(R"({"data":[)", absl::StrJoin(values, ","), R"(],"dtype":")", dtype,
                      R"(","shape":[)", size, "]}");
}

}  // namespace

asio::awaitable<void> Trainer::Create() {
  const std::string session = co_await session_.Post(
      "create_session", R"({"tags":[],"sdk_version":"bench","type":"create_session"})");
  const std::string created = co_await session_.Post(
      "create_model",
      absl::StrCat(R"({"session_id":")", AbslView(StringField(session, "session_id")),
                   R"(","model_seq_id":0,"base_model":")", base_model_,
                   R"(","lora_config":{"rank":8,"seed":1,"train_unembed":true,"train_mlp":true,)",
                   R"("train_attn":true},"type":"create_model"})"));
  co_await Await(std::string(StringField(created, "request_id")));
  model_id_ = absl::StrCat(AbslView(StringField(session, "session_id")), ":train:0");
}

asio::awaitable<std::string> Trainer::SubmitStep() {
  const std::string body = absl::StrCat(
      R"({"adam_params":{"learning_rate":0.0001,"beta1":0.9,"beta2":0.95,"eps":1e-12,)",
      R"("weight_decay":0.0,"grad_clip_norm":0.0},"model_id":")", model_id_, R"(","seq_id":)",
      ++seq_id_, R"(,"type":"optim_step"})");
  co_return co_await Submit("optim_step", body);
}

asio::awaitable<std::string> Trainer::SubmitDatum(int64_t num_tokens) {
  const std::vector<std::string> tokens(static_cast<size_t>(num_tokens), "5");
  const std::string body = absl::StrCat(
      R"({"forward_backward_input":{"data":[{"model_input":{"chunks":[{"type":"encoded_text",)",
      R"("tokens":[)", absl::StrJoin(tokens, ","), R"(]}]},"loss_fn_inputs":{"target_tokens":)",
      TensorJson("6", "int64", num_tokens), R"(,"weights":)",
      TensorJson("1.0", "float32", num_tokens), R"(}}],"loss_fn":"cross_entropy"},"model_id":")",
      model_id_, R"(","seq_id":)", ++seq_id_, "}");
  co_return co_await Submit("forward_backward", body);
}

asio::awaitable<std::string> Trainer::SubmitBody(std::string_view body) {
  // Concatenated messages parse as one; the later value of a field wins.
  tinker_public::ForwardBackwardRequest names;
  names.set_model_id(model_id_);
  names.set_seq_id(++seq_id_);
  const std::string whole = absl::StrCat(AbslView(body), names.SerializeAsString());
  co_return co_await Submit("forward_backward", whole, kProtobuf);
}

asio::awaitable<void> Trainer::Await(const std::string& request_id, std::string_view accept) {
  bool is_there = false;
  while (!is_there) is_there = co_await Poll(request_id, accept);
}

asio::awaitable<bool> Trainer::Poll(const std::string& request_id, std::string_view accept) {
  const std::string question =
      absl::StrCat(R"({"request_id":")", request_id, R"(","allow_metadata_only":false})");
  const std::string answer = co_await session_.Post("retrieve_future", question, kJson, accept);
  if (StringField(answer, "type") == "try_again") co_return false;
  if (!StringField(answer, "error").empty()) throw std::runtime_error(answer);
  co_return true;
}

asio::awaitable<std::string> Trainer::Submit(std::string_view path, std::string_view body,
                                             std::string_view content_type) {
  const std::string answer = co_await session_.Post(path, body, content_type);
  co_return std::string(StringField(answer, "request_id"));
}

}  // namespace lathe::bench
