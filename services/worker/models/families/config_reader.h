// Reads config.json and generation_config.json of an HF folder, and refuses keys that nobody read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {

// The keys by which an HF config says how positions are rotated.
struct RopeKeys {
  const char* layer_type = nullptr;      // member of rope_parameters; null: rope_parameters itself
  const char* scaling = "rope_scaling";  // older spelling of rope_parameters; null: none
  const char* theta = "rope_theta";      // older place of theta
  double default_theta = 1e4;
};

// Each function marks the keys that it reads as understood. All errors but those of Open are
// InvalidArgument and name key and value. Ignoring a key would give wrong numbers.
class ConfigReader {
 public:
  // NotFound if config.json is missing, InvalidArgument if it is no JSON object.
  static absl::StatusOr<ConfigReader> Open(const std::filesystem::path& folder);

  // Gives keys that are absent, but not those that are null, the values of `defaults`. A family
  // calls it first, where HF's config class has a value that the readers below do not assume.
  void AddDefaults(const nlohmann::json& defaults);

  // The value of `key`, or null.
  nlohmann::json Take(const std::string& key);

  // Absent and null mean `otherwise`, if there is one.
  absl::StatusOr<int64_t> PositiveInt(const std::string& key, int64_t limit = int64_t{1} << 31,
                                      std::optional<int64_t> otherwise = {});
  absl::StatusOr<double> PositiveDouble(const std::string& key);
  // Absent means `otherwise`.
  absl::StatusOr<bool> Flag(const std::string& key, bool otherwise = false);
  // Accepts only `value`. An absent key passes only if `may_be_absent`.
  absl::Status Expect(const std::string& key, const nlohmann::json& value,
                      bool may_be_absent = false);
  // Accepts a list, or no list, whose elements are all `value`.
  absl::Status ExpectEach(const std::string& key, const nlohmann::json& value);

  // Rope of the types default, linear, llama3 or yarn, from the older or the newer spelling.
  absl::StatusOr<RopeSpec> Rope(const RopeKeys& keys, int64_t max_position_embeddings);
  // Returns a window for each layer: `window` for "sliding_attention" and 0 for "full_attention" of
  // layer_types. If that is absent, `is_sliding` decides.
  absl::StatusOr<std::vector<int64_t>> Windows(int64_t num_layers, int64_t window,
                                               const std::function<bool(int64_t)>& is_sliding);
  // Tokens that end a sequence, from generation_config.json or else config.json.
  absl::StatusOr<std::vector<int64_t>> EosTokenIds(int64_t vocab_size);

  // Marks keys that have no effect, as the family's other settings stand.
  void Ignore(std::initializer_list<const char*> keys) { taken_.insert(keys.begin(), keys.end()); }
  // Refuses a key that is neither understood, harmless in all families, nor null.
  absl::Status CheckAllUnderstood() const;

  absl::Status Unsupported(const std::string& key, const nlohmann::json& value,
                           const std::string& supported) const;

 private:
  ConfigReader(std::filesystem::path folder, nlohmann::json config)
      : folder_(std::move(folder)), config_(std::move(config)) {}

  std::filesystem::path folder_;
  nlohmann::json config_;
  std::set<std::string> taken_;
};

// Reads the fields that all dense families have under the same keys. The caller adds rope, biases
// and norms.
absl::StatusOr<DenseShape> ReadDenseShape(ConfigReader& config, const std::string& family);

}  // namespace lathe::worker
