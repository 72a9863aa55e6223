// Reads how positions are rotated from an HF config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "services/worker/spec/rope_spec.h"

namespace lathe::worker {

// The newer and the older spelling may stand side by side, if they agree. All errors are
// InvalidArgument and name key and value. Defaults are HF's (modeling_rope_utils.py of transformers
// 5.23).
class RopeReader {
 public:
  // `theta` is the value of `theta_key`, an older place; it may be null.
  RopeReader(const char* theta_key, nlohmann::json theta, double default_theta);

  // Adds the members of `object`, which may be null. `path` names it in errors.
  absl::Status Add(const std::string& path, const nlohmann::json& object);

  absl::StatusOr<RopeSpec> Read(int64_t max_position_embeddings);

 private:
  struct Member {
    std::string path;
    nlohmann::json value;
  };

  absl::Status AddMember(const std::string& name, Member member);
  absl::StatusOr<std::string> TakeType();
  // Returns a number above `above`.
  absl::StatusOr<double> TakeNumber(const std::string& name, std::optional<double> otherwise,
                                    double above = 0);
  absl::Status ReadLlama3(int64_t max_position_embeddings, RopeSpec& rope);
  absl::Status ReadYarn(int64_t max_position_embeddings, RopeSpec& rope);
  absl::Status Unsupported(const std::string& name, const std::string& supported) const;

  double default_theta_;
  std::map<std::string, Member> members_;
  std::set<std::string> taken_;
  std::string path_ = "rope_parameters";  // of members that are missing
};

}  // namespace lathe::worker
