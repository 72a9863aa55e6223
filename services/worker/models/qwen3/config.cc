#include "services/worker/models/qwen3/config.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "libs/common/status_macros.h"
#include "services/worker/models/json_file.h"

namespace lathe::worker {

namespace {

using nlohmann::json;

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

absl::StatusOr<int64_t> PositiveInt(const json& config, const std::string& key) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const json value = ValueOf(config, key);
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kLimit) {
    return Unsupported(key, value, absl::StrCat("an integer from 1 to ", kLimit));
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
                             ModelSpec& spec) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (std::filesystem::exists(path)) {
    ASSIGN_OR_RETURN(const json generation, ReadJsonObject(path));
    ASSIGN_OR_RETURN(spec.eos_token_ids, EosTokenIds(generation, spec.vocab_size));
  }
  if (spec.eos_token_ids.empty()) {
    ASSIGN_OR_RETURN(spec.eos_token_ids, EosTokenIds(config, spec.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const ModelSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: num_attention_heads is %d, not a multiple of "
                        "num_key_value_heads %d",
                        spec.num_heads, spec.num_kv_heads));
  }
  if (spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: head_dim is %d, rope needs an even number", spec.head_dim));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ReadQwen3Config(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(const json config, ReadJsonObject(folder / "config.json"));
  RETURN_IF_ERROR(CheckKeys(config));
  RETURN_IF_ERROR(CheckPlainAttention(config));
  ModelSpec spec{.family = "qwen3"};
  ASSIGN_OR_RETURN(spec.num_layers, PositiveInt(config, "num_hidden_layers"));
  ASSIGN_OR_RETURN(spec.hidden_size, PositiveInt(config, "hidden_size"));
  ASSIGN_OR_RETURN(spec.intermediate_size, PositiveInt(config, "intermediate_size"));
  ASSIGN_OR_RETURN(spec.num_heads, PositiveInt(config, "num_attention_heads"));
  ASSIGN_OR_RETURN(spec.num_kv_heads, PositiveInt(config, "num_key_value_heads"));
  ASSIGN_OR_RETURN(spec.head_dim, PositiveInt(config, "head_dim"));
  ASSIGN_OR_RETURN(spec.vocab_size, PositiveInt(config, "vocab_size"));
  ASSIGN_OR_RETURN(spec.max_position_embeddings, PositiveInt(config, "max_position_embeddings"));
  ASSIGN_OR_RETURN(spec.rms_norm_eps,
                   PositiveDouble(ValueOf(config, "rms_norm_eps"), "rms_norm_eps"));
  ASSIGN_OR_RETURN(spec.rope_theta, RopeTheta(config));
  ASSIGN_OR_RETURN(spec.tie_word_embeddings, Flag(config, "tie_word_embeddings"));
  ASSIGN_OR_RETURN(spec.attention_bias, Flag(config, "attention_bias"));
  RETURN_IF_ERROR(CheckHeads(spec));
  RETURN_IF_ERROR(ReadEosTokenIds(folder, config, spec));
  return spec;
}

namespace {

// Number of tokens that share a block of random bits (sampling_kernel.h). A rank's part is a
// multiple, so no block belongs to two ranks.
constexpr int64_t kVocabularyMultiple = 4;

absl::Status CheckDivides(const char* field, int64_t value, int64_t tp) {
  if (value % tp == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, not a multiple of tp %d", field, value, tp));
}

absl::Status CheckKvHeads(int64_t num_kv_heads, int64_t tp) {
  if (num_kv_heads % tp == 0 || tp % num_kv_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "num_key_value_heads is %d, neither a multiple nor a divisor of tp %d", num_kv_heads, tp));
}

// Returns part `index` of `count` equal parts.
Shard EqualPart(int64_t whole, int64_t index, int64_t count) {
  const int64_t size = whole / count;
  return {.begin = index * size, .size = size};
}

// Returns a rank's part of the vocabulary. A rank needs a token, because an empty row has no
// maximum.
absl::StatusOr<Shard> VocabularyPart(int64_t vocab_size, const TpPlace& place) {
  if (place.size == 1) return Shard{.size = vocab_size};
  const int64_t unit = place.size * kVocabularyMultiple;
  const int64_t padded_size = (vocab_size + unit - 1) / unit * kVocabularyMultiple;
  const int64_t last_begin = (place.size - 1) * padded_size;
  if (last_begin >= vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vocab_size is %d, with tp %d rank %d has the tokens from %d on: none",
                        vocab_size, place.size, place.size - 1, last_begin));
  }
  const int64_t begin = place.index * padded_size;
  const int64_t size = std::min(padded_size, vocab_size - begin);
  return Shard{.begin = begin, .size = size, .padding = padded_size - size};
}

}  // namespace

absl::StatusOr<ModelPart> ShardQwen3(const ModelSpec& spec, const TpPlace& place) {
  RETURN_IF_ERROR(CheckDivides("num_attention_heads", spec.num_heads, place.size));
  RETURN_IF_ERROR(CheckKvHeads(spec.num_kv_heads, place.size));
  RETURN_IF_ERROR(CheckDivides("intermediate_size", spec.intermediate_size, place.size));
  ModelPart part{.whole = spec, .local = spec, .place = place};
  part.num_kv_replicas = std::max<int64_t>(1, place.size / spec.num_kv_heads);
  part.queries = EqualPart(spec.num_heads * spec.head_dim, place.index, place.size);
  part.keys = EqualPart(spec.num_kv_heads * spec.head_dim, place.index / part.num_kv_replicas,
                        place.size / part.num_kv_replicas);
  part.intermediate = EqualPart(spec.intermediate_size, place.index, place.size);
  ASSIGN_OR_RETURN(part.vocabulary, VocabularyPart(spec.vocab_size, place));
  part.local.num_heads = part.queries.size / spec.head_dim;
  part.local.num_kv_heads = part.keys.size / spec.head_dim;
  part.local.intermediate_size = part.intermediate.size;
  part.local.vocab_size = part.vocabulary.padded_size();
  return part;
}

}  // namespace lathe::worker
