// Reads config.json and generation_config.json of an HF folder, and refuses keys that nobody read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {

// Each function marks the keys that it reads as understood. All errors but those of Open are
// InvalidArgument and name key and value. Ignoring a key would give wrong numbers.
class ConfigReader {
 public:
  // NotFound if config.json is missing, InvalidArgument if it is no JSON object.
  static absl::StatusOr<ConfigReader> Open(const std::filesystem::path& folder);

  // The value of `key`, or null.
  nlohmann::json Take(const std::string& key);

  absl::StatusOr<int64_t> PositiveInt(const std::string& key, int64_t limit = int64_t{1} << 31);
  absl::StatusOr<double> PositiveDouble(const std::string& key);
  // Absent means `otherwise`.
  absl::StatusOr<bool> Flag(const std::string& key, bool otherwise = false);
  // Accepts only `value`. An absent key passes only if `may_be_absent`.
  absl::Status Expect(const std::string& key, const nlohmann::json& value,
                      bool may_be_absent = false);
  // Accepts a list, or no list, whose elements are all `value`.
  absl::Status ExpectEach(const std::string& key, const nlohmann::json& value);

  // Theta of plain rope, from the older or the newer spelling.
  absl::StatusOr<double> RopeTheta();
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

// Reads the fields that all dense families have under the same keys. The caller adds head_dim,
// biases and norms.
absl::StatusOr<DenseShape> ReadDenseShape(ConfigReader& config, const std::string& family);

}  // namespace lathe::worker
