#include "tests/parity/parity_script.h"

#include <absl/strings/str_cat.h>

#include "libs/common/losses/registry.h"
#include "libs/common/status_macros.h"
#include "services/worker/models/json_file.h"
#include "services/worker/training/loss_datum.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

// Parses {"name": "ppo", "kl_coef": 0.3, "normalization": "tokens"}; keys as in loss_fn_config.
LossSpec ParseLoss(const json& value) {
  LossSpec loss = DefaultLoss(value.at("name").get<std::string>());
  for (const auto& [key, number] : value.items()) {
    if (key == "name") continue;
    if (key == kNormalization) {
      loss.normalization =
          number == "tokens" ? LossNormalization::kTokens : LossNormalization::kDatums;
      continue;
    }
    double* const place = FindNumber(loss, key);
    if (place == nullptr) {
      throw json::other_error::create(501, absl::StrCat("loss takes no ", key), nullptr);
    }
    *place = number;
  }
  return loss;
}

TrainDatum ParseDatum(const json& value) {
  TrainDatum datum;
  datum.tokens = value.at("tokens").get<std::vector<int32_t>>();
  datum.num_targets = value.value("num_targets", int64_t{1});
  datum.targets = value.at("targets").get<std::vector<int64_t>>();
  const auto floats = [&](const char* key) { return value.value(key, std::vector<float>{}); };
  datum.weights = floats("weights");
  datum.logprobs = floats("logprobs");
  datum.advantages = floats("advantages");
  datum.clip_low = floats("clip_low");
  datum.clip_high = floats("clip_high");
  datum.mask = floats("mask");
  datum.reference_logprobs = floats("reference_logprobs");
  return datum;
}

TrainRequest ParseRequest(const json& value) {
  TrainRequest request;
  request.request_id = value.at("id");
  request.model_id = value.at("model");
  request.seq_id = value.value("seq_id", int64_t{1});
  request.forward_only = value.value("forward_only", false);
  request.loss = ParseLoss(value.at("loss"));
  for (const json& datum : value.at("data")) request.data.push_back(ParseDatum(datum));
  ScaleLosses(request);
  return request;
}

CreateOp ParseCreate(const json& value) {
  LoraSpec lora;
  lora.rank = value.value("rank", lora.rank);
  lora.alpha = value.value("alpha", lora.alpha);
  lora.seed = value.value("seed", lora.seed);
  lora.target_modules = value.value("target_modules", lora.target_modules);
  return {value.at("model"), lora};
}

TrainOp ParseTrain(const json& value) {
  TrainOp op{.name = value.at("name"), .batch = {}};
  for (const json& r : value.at("requests")) op.batch.requests.push_back(ParseRequest(r));
  return op;
}

StepOp ParseStep(const json& value) {
  AdamParams adam;
  for (const AdamField& field : kAdamFields) {
    double& number = adam.*field.number;
    number = value.value(std::string(field.name), number);
  }
  return {value.at("model"), adam};
}

ParityOp ParseOp(const json& value) {
  const std::string op = value.at("op");
  if (op == "logits") {
    return LogitsOp{value.at("tokens"), value.value("model", std::string()), value.at("name")};
  }
  if (op == "create") return ParseCreate(value);
  if (op == "set_weights") return SetWeightsOp{value.at("model"), value.at("file")};
  if (op == "train") return ParseTrain(value);
  if (op == "dump") {
    return DumpOp{value.at("model"), value.at("what") == "gradient", value.at("name")};
  }
  if (op == "input_gradients") {
    return InputGradientsOp{value.at("model"), value.at("tokens"), value.at("file"),
                            value.at("name")};
  }
  if (op == "step") return ParseStep(value);
  throw json::other_error::create(501, absl::StrCat("unknown op ", op), nullptr);
}

}  // namespace

absl::StatusOr<ParityScript> ReadParityScript(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const json value, ReadJsonObject(path));
  ParityScript script;
  try {
    script.folder = value.at("folder");
    script.token_budget = value.value("token_budget", script.token_budget);
    script.head_chunk_elements = value.value("head_chunk_elements", script.head_chunk_elements);
    script.device = value.value("device", script.device);
    script.compute_dtype = value.value("compute_dtype", script.compute_dtype);
    script.num_threads = value.value("num_threads", script.num_threads);
    for (const json& op : value.at("ops")) script.ops.push_back(ParseOp(op));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", error.what()));
  }
  return script;
}

}  // namespace lathe::worker
