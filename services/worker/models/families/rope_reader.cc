#include "services/worker/models/families/rope_reader.h"

#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

// The factor by which yarn lengthens cosines and sines (arXiv:2309.00071, section 3.4).
double Lengthening(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

}  // namespace

RopeReader::RopeReader(const char* theta_key, json theta, double default_theta)
    : default_theta_(default_theta) {
  if (!theta.is_null()) members_["rope_theta"] = {theta_key, std::move(theta)};
}

absl::Status RopeReader::Add(const std::string& path, const json& object) {
  if (object.is_null()) return absl::OkStatus();
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "config.json: %s is %s, supported is null or an object", path, object.dump()));
  }
  path_ = path;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    RETURN_IF_ERROR(
        AddMember(name == "type" ? "rope_type" : name, {absl::StrCat(path, ".", name), value}));
  }
  return absl::OkStatus();
}

absl::Status RopeReader::AddMember(const std::string& name, Member member) {
  const auto [it, is_new] = members_.emplace(name, member);
  if (is_new || it->second.value == member.value) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("config.json: %s is %s, but %s is %s",
                                                    member.path, member.value.dump(),
                                                    it->second.path, it->second.value.dump()));
}

absl::Status RopeReader::Unsupported(const std::string& name, const std::string& supported) const {
  const auto it = members_.find(name);
  if (it == members_.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: %s.%s is missing, supported is %s", path_, name, supported));
  }
  return absl::InvalidArgumentError(absl::StrFormat("config.json: %s is %s, supported is %s",
                                                    it->second.path, it->second.value.dump(),
                                                    supported));
}

absl::StatusOr<double> RopeReader::TakeNumber(const std::string& name,
                                              std::optional<double> otherwise, double above) {
  taken_.insert(name);
  const auto it = members_.find(name);
  if (it == members_.end() && otherwise.has_value()) return *otherwise;
  if (it == members_.end() || !it->second.value.is_number() ||
      !(it->second.value.get<double>() > above)) {
    return Unsupported(name, absl::StrFormat("a number above %g", above));
  }
  return it->second.value.get<double>();
}

absl::StatusOr<std::string> RopeReader::TakeType() {
  taken_.insert("rope_type");
  const auto it = members_.find("rope_type");
  if (it == members_.end()) return "default";
  if (!it->second.value.is_string()) return Unsupported("rope_type", "a name");
  return it->second.value.get<std::string>();
}

absl::Status RopeReader::ReadLlama3(int64_t max_position_embeddings, RopeSpec& rope) {
  ASSIGN_OR_RETURN(const double original,
                   TakeNumber("original_max_position_embeddings", max_position_embeddings));
  rope.original_max_position_embeddings = std::llround(original);
  ASSIGN_OR_RETURN(rope.factor, TakeNumber("factor", {}));
  ASSIGN_OR_RETURN(rope.low_freq_factor, TakeNumber("low_freq_factor", {}));
  ASSIGN_OR_RETURN(rope.high_freq_factor,
                   TakeNumber("high_freq_factor", {}, /*above=*/rope.low_freq_factor));
  return absl::OkStatus();
}

absl::Status RopeReader::ReadYarn(int64_t max_position_embeddings, RopeSpec& rope) {
  ASSIGN_OR_RETURN(const double original,
                   TakeNumber("original_max_position_embeddings", max_position_embeddings));
  rope.original_max_position_embeddings = std::llround(original);
  ASSIGN_OR_RETURN(rope.factor,
                   TakeNumber("factor", static_cast<double>(max_position_embeddings) / original));
  ASSIGN_OR_RETURN(rope.beta_slow, TakeNumber("beta_slow", 1));
  ASSIGN_OR_RETURN(rope.beta_fast, TakeNumber("beta_fast", 32));
  ASSIGN_OR_RETURN(const double mscale, TakeNumber("mscale", 1));
  ASSIGN_OR_RETURN(const double mscale_all_dim, TakeNumber("mscale_all_dim", 1));
  const bool has_both = members_.contains("mscale") && members_.contains("mscale_all_dim");
  const double lengthening =
      has_both ? Lengthening(rope.factor, mscale) / Lengthening(rope.factor, mscale_all_dim)
               : Lengthening(rope.factor, 1);
  ASSIGN_OR_RETURN(rope.attention_factor, TakeNumber("attention_factor", lengthening));
  taken_.insert("truncate");
  if (const auto it = members_.find("truncate"); it != members_.end()) {
    if (!it->second.value.is_boolean()) return Unsupported("truncate", "true or false");
    rope.truncate = it->second.value.get<bool>();
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeSpec> RopeReader::Read(int64_t max_position_embeddings) {
  RopeSpec rope;
  // With theta 1, yarn would divide by its logarithm, 0.
  ASSIGN_OR_RETURN(rope.theta, TakeNumber("rope_theta", default_theta_, /*above=*/1));
  ASSIGN_OR_RETURN(const std::string type, TakeType());
  if (type == "linear") {
    rope.type = RopeType::kLinear;
    ASSIGN_OR_RETURN(rope.factor, TakeNumber("factor", {}));
  } else if (type == "llama3") {
    rope.type = RopeType::kLlama3;
    RETURN_IF_ERROR(ReadLlama3(max_position_embeddings, rope));
  } else if (type == "yarn") {
    rope.type = RopeType::kYarn;
    RETURN_IF_ERROR(ReadYarn(max_position_embeddings, rope));
  } else if (type != "default") {
    return Unsupported("rope_type", R"("default", "linear", "llama3" or "yarn")");
  }
  for (const auto& [name, member] : members_) {
    if (taken_.contains(name) || (name == "partial_rotary_factor" && member.value == 1)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: %s is %s, which is not understood for rope_type \"%s\"",
                        member.path, member.value.dump(), type));
  }
  return rope;
}

}  // namespace lathe::worker
