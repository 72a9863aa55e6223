#include "services/worker/models/families/config_reader.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "libs/common/status_macros.h"
#include "services/worker/models/families/rope_reader.h"
#include "services/worker/models/json_file.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

// Bounds the tables of a model, which have rows for each layer.
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kMostFeatures = int64_t{1} << 31;

// Keys without effect on a loaded model's numbers: bookkeeping, unused token ids, training
// settings, dtype (each tensor has its own).
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
                                                      "model_type",
                                                      "output_attentions",
                                                      "output_hidden_states",
                                                      "pad_token_id",
                                                      "problem_type",
                                                      "return_dict",
                                                      "torch_dtype",
                                                      "transformers_version",
                                                      "use_cache"};
  return *keys;
}

json ValueOf(const json& object, const std::string& key) {
  const auto it = object.find(key);
  return it == object.end() ? json() : *it;
}

// Reads a number or a list; returns an empty list if absent.
absl::StatusOr<std::vector<int64_t>> ReadEosTokenIds(const json& value, int64_t vocab_size) {
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

// Reads head_dim, or derives it as HF does.
absl::StatusOr<int64_t> ReadHeadDim(ConfigReader& config, const DenseShape& shape) {
  if (config.Take("head_dim").is_null() && shape.hidden_size % shape.num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "config.json: hidden_size is %d, not a multiple of num_attention_heads %d, and head_dim "
        "is missing",
        shape.hidden_size, shape.num_heads));
  }
  return config.PositiveInt("head_dim", kMostFeatures, shape.hidden_size / shape.num_heads);
}

}  // namespace

absl::StatusOr<ConfigReader> ConfigReader::Open(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(json config, ReadJsonObject(folder / "config.json"));
  return ConfigReader(folder, std::move(config));
}

void ConfigReader::AddDefaults(const json& defaults) {
  for (const auto& [key, value] : defaults.items()) config_.emplace(key, value);
}

json ConfigReader::Take(const std::string& key) {
  taken_.insert(key);
  return ValueOf(config_, key);
}

absl::Status ConfigReader::Unsupported(const std::string& key, const json& value,
                                       const std::string& supported) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("config.json: %s is %s, supported is %s", key, value.dump(), supported));
}

absl::StatusOr<int64_t> ConfigReader::PositiveInt(const std::string& key, int64_t limit,
                                                  std::optional<int64_t> otherwise) {
  const json value = Take(key);
  if (value.is_null() && otherwise.has_value()) return *otherwise;
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > limit) {
    return Unsupported(key, value, absl::StrCat("an integer from 1 to ", limit));
  }
  return value.get<int64_t>();
}

absl::StatusOr<double> ConfigReader::PositiveDouble(const std::string& key) {
  const json value = Take(key);
  if (!value.is_number() || !(value.get<double>() > 0)) {
    return Unsupported(key, value, "a number above 0");
  }
  return value.get<double>();
}

absl::StatusOr<bool> ConfigReader::Flag(const std::string& key, bool otherwise) {
  const json value = Take(key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) return Unsupported(key, value, "true or false");
  return value.get<bool>();
}

absl::Status ConfigReader::Expect(const std::string& key, const json& value, bool may_be_absent) {
  const json found = Take(key);
  if (found == value || (may_be_absent && found.is_null())) return absl::OkStatus();
  return Unsupported(key, found, value.dump());
}

absl::Status ConfigReader::ExpectEach(const std::string& key, const json& value) {
  for (const json& found : Take(key)) {
    if (found != value) return Unsupported(key, found, value.dump());
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeSpec> ConfigReader::Rope(const RopeKeys& keys, int64_t max_position_embeddings) {
  RopeReader reader(keys.theta, Take(keys.theta), keys.default_theta);
  json parameters = Take("rope_parameters");
  std::string path = "rope_parameters";
  if (keys.layer_type != nullptr && parameters.is_object()) {
    parameters = ValueOf(parameters, keys.layer_type);
    absl::StrAppend(&path, ".", keys.layer_type);
  }
  RETURN_IF_ERROR(reader.Add(path, parameters));
  if (keys.scaling != nullptr) RETURN_IF_ERROR(reader.Add(keys.scaling, Take(keys.scaling)));
  return reader.Read(max_position_embeddings);
}

absl::StatusOr<std::vector<int64_t>> ConfigReader::Windows(
    int64_t num_layers, int64_t window, const std::function<bool(int64_t)>& is_sliding) {
  const json types = Take("layer_types");
  std::vector<int64_t> windows;
  if (types.is_null()) {
    for (int64_t i = 0; i < num_layers; ++i) windows.push_back(is_sliding(i) ? window : 0);
    return windows;
  }
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    return Unsupported("layer_types", types, absl::StrFormat("a list of %d names", num_layers));
  }
  for (const json& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return Unsupported("layer_types", type, R"("full_attention" or "sliding_attention")");
    }
    windows.push_back(type == "sliding_attention" ? window : 0);
  }
  return windows;
}

absl::StatusOr<std::vector<int64_t>> ConfigReader::EosTokenIds(int64_t vocab_size) {
  const std::filesystem::path path = folder_ / "generation_config.json";
  const json own = Take("eos_token_id");
  if (std::filesystem::exists(path)) {
    ASSIGN_OR_RETURN(const json generation, ReadJsonObject(path));
    ASSIGN_OR_RETURN(std::vector<int64_t> ids,
                     ReadEosTokenIds(ValueOf(generation, "eos_token_id"), vocab_size));
    if (!ids.empty()) return ids;
  }
  return ReadEosTokenIds(own, vocab_size);
}

absl::Status ConfigReader::CheckAllUnderstood() const {
  for (const auto& [key, value] : config_.items()) {
    if (taken_.count(key) || HarmlessKeys().count(key) || value.is_null()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: %s is not understood (value %s)", key, value.dump()));
  }
  return absl::OkStatus();
}

absl::StatusOr<DenseShape> ReadDenseShape(ConfigReader& config, const std::string& family) {
  DenseShape shape{.family = family};
  ASSIGN_OR_RETURN(shape.num_layers, config.PositiveInt("num_hidden_layers", kMostLayers));
  ASSIGN_OR_RETURN(shape.hidden_size, config.PositiveInt("hidden_size"));
  ASSIGN_OR_RETURN(shape.intermediate_size, config.PositiveInt("intermediate_size"));
  ASSIGN_OR_RETURN(shape.num_heads, config.PositiveInt("num_attention_heads"));
  ASSIGN_OR_RETURN(shape.num_kv_heads,
                   config.PositiveInt("num_key_value_heads", kMostFeatures, shape.num_heads));
  ASSIGN_OR_RETURN(shape.head_dim, ReadHeadDim(config, shape));
  ASSIGN_OR_RETURN(shape.vocab_size, config.PositiveInt("vocab_size"));
  ASSIGN_OR_RETURN(shape.max_position_embeddings, config.PositiveInt("max_position_embeddings"));
  ASSIGN_OR_RETURN(shape.rms_norm_eps, config.PositiveDouble("rms_norm_eps"));
  ASSIGN_OR_RETURN(shape.tie_word_embeddings, config.Flag("tie_word_embeddings"));
  ASSIGN_OR_RETURN(shape.eos_token_ids, config.EosTokenIds(shape.vocab_size));
  return shape;
}

}  // namespace lathe::worker
