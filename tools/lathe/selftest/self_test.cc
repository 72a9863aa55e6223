#include "tools/lathe/selftest/self_test.h"

#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::cli {
namespace {

constexpr int kNumTokens = 16;
constexpr int kNumSampled = 8;
constexpr int kRank = 8;
// A first step of Adam moves each weight by about this much: enough to see, too little to
// overshoot.
constexpr double kLearningRate = 1e-3;
constexpr int kSeed = 1;

// Token ids that every vocabulary has.
std::vector<int> Tokens(int first) {
  std::vector<int> tokens(kNumTokens);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Json Tensor(const Json& data, const char* dtype) {
  return {{"data", data}, {"dtype", dtype}, {"shape", {kNumTokens}}};
}

Json Chunks(const std::vector<int>& tokens) {
  return {{"chunks", Json::array({{{"type", "encoded_text"}, {"tokens", tokens}}})}};
}

Json Batch() {
  const Json datum = {{"model_input", Chunks(Tokens(1))},
                      {"loss_fn_inputs",
                       {{"target_tokens", Tensor(Tokens(2), "int64")},
                        {"weights", Tensor(std::vector<double>(kNumTokens, 1.0), "float32")}}}};
  return {{"data", Json::array({datum})}, {"loss_fn", "cross_entropy"}};
}

absl::Status Failed(const std::string& step, const std::string& why) {
  return WithDetail(absl::UnavailableError(absl::StrCat(step, ": ", why)), "selftest_failed");
}

class Steps {
 public:
  Steps(ApiClient& api, const SelfTestOptions& options)
      : api_(api), model_(options.model), deadline_(SteadyNow() + options.timeout) {}

  absl::Status Run() {
    RETURN_IF_ERROR(FindModel());
    RETURN_IF_ERROR(StartSession());
    const absl::Status status = TrainAndSample();
    const absl::Status finished = FinishSession();
    return status.ok() ? finished : status;
  }

 private:
  void Say(const char* step, const std::string& what) {
    const absl::Time now = SteadyNow();
    std::printf("%-17s %s, %.2f s\n", step, what.c_str(), absl::ToDoubleSeconds(now - began_));
    std::fflush(stdout);
    began_ = now;
  }

  absl::StatusOr<Json> Post(const std::string& path, const Json& body) {
    absl::StatusOr<Json> answer = api_.Post(path, body, deadline_);
    if (!answer.ok()) return Failed(path, std::string(answer.status().message()));
    return answer;
  }

  // Sends a request and polls for its result.
  absl::StatusOr<Json> Await(const std::string& path, const Json& body) {
    ASSIGN_OR_RETURN(const Json future, Post(path, body));
    const absl::StatusOr<std::string> request_id = JsonString(future, "request_id");
    if (!request_id.ok()) return Failed(path, std::string(request_id.status().message()));
    while (true) {
      ASSIGN_OR_RETURN(Json result, Post("retrieve_future", {{"request_id", *request_id}}));
      if (JsonHas(result, "error")) return Failed(path, ToJsonText(result["error"]));
      if (JsonString(result, "type").value_or("") != "try_again") return result;
      if (SteadyNow() >= deadline_) {
        return Failed(path, absl::StrCat("no result in time: ",
                                         JsonString(result, "queue_state_reason").value_or("")));
      }
    }
  }

  absl::Status FindModel() {
    const absl::StatusOr<Json> answer = api_.Get("get_server_capabilities", deadline_);
    if (!answer.ok()) return Failed("capabilities", std::string(answer.status().message()));
    if (model_.empty()) {
      const Json models = answer->value("supported_models", Json::array());
      if (models.empty()) return Failed("capabilities", "no model is served yet");
      model_ = models[0].value("model_name", "");
    }
    Say("capabilities", model_);
    return absl::OkStatus();
  }

  absl::Status StartSession() {
    ASSIGN_OR_RETURN(const Json session,
                     Post("create_session", {{"tags", {"selftest"}}, {"sdk_version", "lathe"}}));
    session_id_ = JsonString(session, "session_id").value_or("");
    Say("create_session", session_id_);
    return absl::OkStatus();
  }

  absl::Status FinishSession() {
    RETURN_IF_ERROR(
        Post(absl::StrCat("sessions/", session_id_, "/finish"), Json::object()).status());
    Say("finish", session_id_);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Loss(const char* path, const char* input, int seq_id) {
    ASSIGN_OR_RETURN(const Json result,
                     Await(path, {{"model_id", model_id_}, {"seq_id", seq_id}, {input, Batch()}}));
    const absl::StatusOr<double> loss =
        JsonNumber(result.value("metrics", Json::object()), "loss:sum");
    if (!loss.ok()) return Failed(path, std::string(loss.status().message()));
    Say(path, absl::StrFormat("loss %.6f", *loss));
    return loss;
  }

  absl::Status TrainAndSample() {
    RETURN_IF_ERROR(CreateModel());
    ASSIGN_OR_RETURN(const double before, Loss("forward_backward", "forward_backward_input", 1));
    RETURN_IF_ERROR(Step());
    ASSIGN_OR_RETURN(const double after, Loss("forward", "forward_input", 3));
    if (!std::isfinite(after) || after >= before) {
      return Failed("forward",
                    absl::StrFormat("the loss did not fall: %.6f, then %.6f", before, after));
    }
    return Sample();
  }

  absl::Status CreateModel() {
    ASSIGN_OR_RETURN(const Json model, Await("create_model", {{"session_id", session_id_},
                                                              {"model_seq_id", 0},
                                                              {"base_model", model_},
                                                              {"lora_config",
                                                               {{"rank", kRank},
                                                                {"seed", kSeed},
                                                                {"train_unembed", true},
                                                                {"train_mlp", true},
                                                                {"train_attn", true}}}}));
    model_id_ = JsonString(model, "model_id").value_or("");
    Say("create_model", model_id_);
    return absl::OkStatus();
  }

  absl::Status Step() {
    const Json adam = {{"learning_rate", kLearningRate},
                       {"beta1", 0.9},
                       {"beta2", 0.95},
                       {"eps", 1e-12},
                       {"weight_decay", 0.0},
                       {"grad_clip_norm", 0.0}};
    ASSIGN_OR_RETURN(
        const Json result,
        Await("optim_step", {{"model_id", model_id_}, {"seq_id", 2}, {"adam_params", adam}}));
    const double norm =
        JsonNumber(result.value("metrics", Json::object()), "grad_norm").value_or(NAN);
    Say("optim_step", absl::StrFormat("grad_norm %.6f", norm));
    return absl::OkStatus();
  }

  absl::Status Sample() {
    ASSIGN_OR_RETURN(
        const Json saved,
        Await("save_weights_for_sampler",
              {{"model_id", model_id_}, {"seq_id", 4}, {"sampling_session_seq_id", 0}}));
    const std::string sampler = JsonString(saved, "sampling_session_id").value_or("");
    if (sampler.empty()) return Failed("save_weights_for_sampler", "the answer names no sampler");
    Say("save_weights", sampler);
    ASSIGN_OR_RETURN(
        const Json result,
        Await("asample", {{"sampling_session_id", sampler},
                          {"seq_id", 1},
                          {"num_samples", 1},
                          {"prompt", Chunks(Tokens(1))},
                          {"sampling_params", {{"max_tokens", kNumSampled}, {"seed", kSeed}}}}));
    const Json sequences = result.value("sequences", Json::array());
    const std::size_t num_tokens =
        sequences.empty() ? 0 : sequences[0].value("tokens", Json::array()).size();
    if (num_tokens == 0) return Failed("asample", "the answer has no token");
    Say("asample", absl::StrCat(num_tokens, " tokens"));
    return absl::OkStatus();
  }

  ApiClient& api_;
  std::string model_;
  const absl::Time deadline_;
  absl::Time began_ = SteadyNow();
  std::string session_id_;
  std::string model_id_;
};

}  // namespace

absl::Status RunSelfTest(ApiClient& api, const SelfTestOptions& options) {
  RETURN_IF_ERROR(Steps(api, options).Run());
  std::printf("the service trains and samples\n");
  return absl::OkStatus();
}

}  // namespace lathe::cli
