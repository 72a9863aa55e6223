#include "services/worker/models/qwen3/config.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "libs/common/status_macros.h"
#include "services/worker/models/json_file.h"
#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {

namespace {

using nlohmann::json;

// Bounds the tables of a model, which have rows for each layer.
constexpr int64_t kMostLayers = 1024;

// Keys that the code below reads.
const std::set<std::string>& UnderstoodKeys() {
  static const auto* keys = new std::set<std::string>{
      "attention_bias",      "eos_token_id",        "head_dim",          "hidden_act",
      "hidden_size",         "intermediate_size",   "layer_types",       "max_position_embeddings",
      "model_type",          "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
      "rms_norm_eps",        "rope_parameters",     "rope_scaling",      "rope_theta",
      "tie_word_embeddings", "use_sliding_window",  "vocab_size"};
  return *keys;
}

// Keys without effect on a loaded model's numbers: bookkeeping, unused token ids, training
// settings, dtype (each tensor has its own), and settings of sliding windows, which must be off.
const std::set<std::string>& HarmlessKeys() {
  static const auto* keys = new std::set<std::string>{"_attn_implementation",
                                                      "_name_or_path",
                                                      "architectures",
                                                      "attention_dropout",
                                                      "bos_token_id",
                                                      "chunk_size_feed_forward",
                                                      "dtype",
                                                      "id2label",
                                                      "initializer_range",
                                                      "is_encoder_decoder",
                                                      "label2id",
                                                      "max_window_layers",
                                                      "output_attentions",
                                                      "output_hidden_states",
                                                      "pad_token_id",
                                                      "problem_type",
                                                      "return_dict",
                                                      "sliding_window",
                                                      "torch_dtype",
                                                      "transformers_version",
                                                      "use_cache"};
  return *keys;
}

absl::Status Unsupported(const std::string& key, const json& value, const std::string& supported) {
  return absl::InvalidArgumentError(
      absl::StrFormat("config.json: %s is %s, supported is %s", key, value.dump(), supported));
}

absl::Status CheckKeys(const json& config) {
  for (const auto& [key, value] : config.items()) {
    if (UnderstoodKeys().count(key) || HarmlessKeys().count(key) || value.is_null()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: %s is not understood (value %s)", key, value.dump()));
  }
  return absl::OkStatus();
}

// Returns the value of `key`, or null if the key is absent.
json ValueOf(const json& config, const std::string& key) {
  const auto it = config.find(key);
  return it == config.end() ? json() : *it;
}

absl::StatusOr<int64_t> PositiveInt(const json& config, const std::string& key,
                                    int64_t limit = int64_t{1} << 31) {
  const json value = ValueOf(config, key);
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > limit) {
    return Unsupported(key, value, absl::StrCat("an integer from 1 to ", limit));
  }
  return value.get<int64_t>();
}

absl::StatusOr<double> PositiveDouble(const json& value, const std::string& key) {
  if (!value.is_number() || !(value.get<double>() > 0)) {
    return Unsupported(key, value, "a number above 0");
  }
  return value.get<double>();
}

// Reads a boolean. Absent means false, as in HF's Qwen3Config.
absl::StatusOr<bool> Flag(const json& config, const std::string& key) {
  const json value = ValueOf(config, key);
  if (value.is_null()) return false;
  if (!value.is_boolean()) return Unsupported(key, value, "true or false");
  return value.get<bool>();
}

// Accepts plain rope only. Either "rope_type" or "type" may say "default".
absl::Status CheckRopeIsPlain(const std::string& key, const json& rope) {
  if (!rope.is_object()) return Unsupported(key, rope, "null or an object");
  for (const auto& [name, value] : rope.items()) {
    if (name == "rope_theta") continue;
    if ((name == "rope_type" || name == "type") && value == "default") continue;
    return Unsupported(absl::StrCat(key, ".", name), value, "plain rope (rope_type \"default\")");
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RopeTheta(const json& config) {
  const json scaling = ValueOf(config, "rope_scaling");
  if (!scaling.is_null()) RETURN_IF_ERROR(CheckRopeIsPlain("rope_scaling", scaling));
  json theta = ValueOf(config, "rope_theta");
  const json parameters = ValueOf(config, "rope_parameters");
  if (!parameters.is_null()) {
    RETURN_IF_ERROR(CheckRopeIsPlain("rope_parameters", parameters));
    const json inner = ValueOf(parameters, "rope_theta");
    if (!theta.is_null() && !inner.is_null() && theta != inner) {
      return Unsupported("rope_theta", theta,
                         absl::StrCat("what rope_parameters.rope_theta says, ", inner.dump()));
    }
    if (!inner.is_null()) theta = inner;
  }
  return PositiveDouble(theta, "rope_theta");
}

absl::Status CheckPlainAttention(const json& config) {
  ASSIGN_OR_RETURN(const bool sliding, Flag(config, "use_sliding_window"));
  if (sliding) return Unsupported("use_sliding_window", true, "false");
  for (const json& type : ValueOf(config, "layer_types")) {
    if (type != "full_attention") return Unsupported("layer_types", type, "\"full_attention\"");
  }
  const json act = ValueOf(config, "hidden_act");
  if (act != "silu") return Unsupported("hidden_act", act, "\"silu\"");
  return absl::OkStatus();
}

// Reads a number or a list; returns an empty list if absent.
absl::StatusOr<std::vector<int64_t>> EosTokenIds(const json& config, int64_t vocab_size) {
  const json value = ValueOf(config, "eos_token_id");
  std::vector<int64_t> ids;
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (id.is_null()) continue;
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "eos_token_id is %s, the vocabulary has %d tokens", id.dump(), vocab_size));
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

absl::Status ReadEosTokenIds(const std::filesystem::path& folder, const json& config,
                             DenseShape& shape) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (std::filesystem::exists(path)) {
    ASSIGN_OR_RETURN(const json generation, ReadJsonObject(path));
    ASSIGN_OR_RETURN(shape.eos_token_ids, EosTokenIds(generation, shape.vocab_size));
  }
  if (shape.eos_token_ids.empty()) {
    ASSIGN_OR_RETURN(shape.eos_token_ids, EosTokenIds(config, shape.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const DenseShape& shape) {
  if (shape.num_heads % shape.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: num_attention_heads is %d, not a multiple of "
                        "num_key_value_heads %d",
                        shape.num_heads, shape.num_kv_heads));
  }
  if (shape.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: head_dim is %d, rope needs an even number", shape.head_dim));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderSpec> ReadQwen3Config(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(const json config, ReadJsonObject(folder / "config.json"));
  RETURN_IF_ERROR(CheckKeys(config));
  RETURN_IF_ERROR(CheckPlainAttention(config));
  DenseShape shape{.family = "qwen3"};
  ASSIGN_OR_RETURN(shape.num_layers, PositiveInt(config, "num_hidden_layers", kMostLayers));
  ASSIGN_OR_RETURN(shape.hidden_size, PositiveInt(config, "hidden_size"));
  ASSIGN_OR_RETURN(shape.intermediate_size, PositiveInt(config, "intermediate_size"));
  ASSIGN_OR_RETURN(shape.num_heads, PositiveInt(config, "num_attention_heads"));
  ASSIGN_OR_RETURN(shape.num_kv_heads, PositiveInt(config, "num_key_value_heads"));
  ASSIGN_OR_RETURN(shape.head_dim, PositiveInt(config, "head_dim"));
  ASSIGN_OR_RETURN(shape.vocab_size, PositiveInt(config, "vocab_size"));
  ASSIGN_OR_RETURN(shape.max_position_embeddings, PositiveInt(config, "max_position_embeddings"));
  ASSIGN_OR_RETURN(shape.rms_norm_eps,
                   PositiveDouble(ValueOf(config, "rms_norm_eps"), "rms_norm_eps"));
  ASSIGN_OR_RETURN(shape.rope_theta, RopeTheta(config));
  ASSIGN_OR_RETURN(shape.tie_word_embeddings, Flag(config, "tie_word_embeddings"));
  ASSIGN_OR_RETURN(shape.has_qkv_bias, Flag(config, "attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  RETURN_IF_ERROR(CheckHeads(shape));
  RETURN_IF_ERROR(ReadEosTokenIds(folder, config, shape));
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
