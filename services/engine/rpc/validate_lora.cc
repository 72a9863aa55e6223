#include "services/engine/rpc/validate_lora.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr char kCode[] = "bad_lora";
constexpr char kAlphaField[] = "lora_config.alpha";
constexpr char kModulesField[] = "lora_config.target_modules";

std::string Shown(const std::string& text) {
  return absl::CHexEscape(text.substr(0, kMaxShownBytes));
}

// Workers compute with alpha in float32.
bool IsUsableAlpha(double alpha) {
  const auto value = static_cast<float>(alpha);
  return std::isfinite(value) && value > 0;
}

absl::Status BadAlpha(const std::string& field, const std::string& value) {
  return Invalid(kCode, field,
                 absl::StrFormat("%s is %s, expected a finite number above 0", field, value));
}

absl::Status CheckAlpha(double alpha, const std::string& field) {
  if (IsUsableAlpha(alpha)) return absl::OkStatus();
  return BadAlpha(field, absl::StrFormat("%g", alpha));
}

// Returns `names` in the order of DenseLoraModules().
absl::StatusOr<std::vector<std::string>> CheckModules(const std::vector<std::string>& names,
                                                      const std::string& field) {
  const std::vector<std::string> known = LoraModuleNames(DenseLoraModules());
  for (const std::string& name : names) {
    if (!ContainsModule(known, name)) {
      return Invalid(kCode, field,
                     absl::StrFormat("%s has '%s', known are %s", field, Shown(name),
                                     absl::StrJoin(known, ", ")));
    }
    if (std::count(names.begin(), names.end(), name) > 1) {
      return Invalid(kCode, field, absl::StrFormat("%s has %s twice", field, name));
    }
  }
  return LoraModulesWhere(DenseLoraModules(), [&](const LoraModule& module) {
    return ContainsModule(names, module.name);
  });
}

const std::string* FindValue(const Metadata& metadata, const char* key) {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

struct Family {
  LoraFamily family;
  const char* flag;
  bool is_said;
  bool is_on;
};

std::vector<Family> FamiliesOf(const v1::LoraConfig& proto) {
  return {{LoraFamily::kAttention, "train_attn", proto.has_train_attn(), proto.train_attn()},
          {LoraFamily::kMlp, "train_mlp", proto.has_train_mlp(), proto.train_mlp()},
          {LoraFamily::kUnembedding, "train_unembed", proto.has_train_unembed(),
           proto.train_unembed()}};
}

// Enables unset families that have a module in `modules`.
absl::Status AddFamiliesOf(const std::vector<std::string>& modules, const std::string& field,
                           std::vector<Family>& families) {
  for (const LoraModule& module : DenseLoraModules()) {
    if (!ContainsModule(modules, module.name)) continue;
    Family& family = *std::find_if(families.begin(), families.end(),
                                   [&](const Family& one) { return one.family == module.family; });
    if (family.is_said && !family.is_on) {
      return Invalid(kCode, field,
                     absl::StrFormat("%s has %s, but lora_config.%s is false", field, module.name,
                                     family.flag));
    }
    family.is_on = true;
  }
  return absl::OkStatus();
}

// Returns the modules that the enabled families include on this server.
absl::StatusOr<std::vector<std::string>> ModulesOfFamilies(const std::vector<Family>& families,
                                                           const LoraDefaults& defaults) {
  const std::vector<std::string> asked =
      LoraModulesOf(families[0].is_on, families[1].is_on, families[2].is_on);
  if (asked.empty()) {
    return Invalid(kCode, "lora_config",
                   "lora_config trains nothing: one of train_attn, train_mlp and train_unembed "
                   "must be true");
  }
  std::vector<std::string> modules =
      LoraModulesWhere(DenseLoraModules(), [&](const LoraModule& module) {
        return ContainsModule(asked, module.name) &&
               ContainsModule(defaults.target_modules, module.name);
      });
  if (!modules.empty()) return modules;
  return Invalid(
      kCode, "lora_config",
      absl::StrFormat("lora_config trains nothing: it asks for %s, this server's "
                      "lora.target_modules are %s; name others in target_modules",
                      absl::StrJoin(asked, ", "), absl::StrJoin(defaults.target_modules, ", ")));
}

absl::Status GivenTwice(const std::string& field, const char* key) {
  return Invalid(
      kCode, field,
      absl::StrFormat("%s and user_metadata.%s are both given, expected one", field, key));
}

}  // namespace

absl::StatusOr<v1::LoraConfig> ReadLoraMetadata(const Metadata& metadata) {
  v1::LoraConfig read;
  if (const std::string* const text = FindValue(metadata, kLoraAlphaKey)) {
    const std::string field = absl::StrCat("user_metadata.", kLoraAlphaKey);
    double alpha = 0;
    if (!absl::SimpleAtod(*text, &alpha) || !IsUsableAlpha(alpha)) {
      return BadAlpha(field, absl::StrCat("'", Shown(*text), "'"));
    }
    read.set_alpha(alpha);
  }
  if (const std::string* const text = FindValue(metadata, kTargetModulesKey)) {
    const std::vector<std::string> names = absl::StrSplit(*text, ',');
    ASSIGN_OR_RETURN(const std::vector<std::string> modules,
                     CheckModules(names, absl::StrCat("user_metadata.", kTargetModulesKey)));
    read.mutable_target_modules()->Assign(modules.begin(), modules.end());
  }
  return read;
}

absl::StatusOr<LoraDefaults> MakeLoraDefaults(double alpha,
                                              const std::vector<std::string>& target_modules) {
  constexpr char kOption[] = "lora.target_modules";
  RETURN_IF_ERROR(CheckAlpha(alpha, "lora.alpha"));
  LoraDefaults defaults{.alpha = alpha, .target_modules = {}};
  ASSIGN_OR_RETURN(defaults.target_modules, CheckModules(target_modules, kOption));
  if (!defaults.target_modules.empty()) return defaults;
  return Invalid(kCode, kOption, absl::StrFormat("%s is empty, expected at least one", kOption));
}

absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const Metadata& metadata,
                                        const LoraDefaults& defaults, const ModelLimits& limits) {
  if (proto.rank() < 1 || proto.rank() > limits.max_lora_rank) {
    return Invalid(kCode, "lora_config.rank",
                   absl::StrFormat("lora_config.rank is %d, expected 1 to %d", proto.rank(),
                                   limits.max_lora_rank));
  }
  ASSIGN_OR_RETURN(const v1::LoraConfig in_metadata, ReadLoraMetadata(metadata));
  if (proto.has_alpha()) {
    if (in_metadata.has_alpha()) return GivenTwice(kAlphaField, kLoraAlphaKey);
    RETURN_IF_ERROR(CheckAlpha(proto.alpha(), kAlphaField));
  }
  const v1::LoraConfig& with_alpha = proto.has_alpha() ? proto : in_metadata;
  std::string field = absl::StrCat("user_metadata.", kTargetModulesKey);
  std::vector<std::string> modules(in_metadata.target_modules().begin(),
                                   in_metadata.target_modules().end());
  if (!proto.target_modules().empty()) {
    if (!modules.empty()) return GivenTwice(kModulesField, kTargetModulesKey);
    field = kModulesField;
    ASSIGN_OR_RETURN(
        modules,
        CheckModules({proto.target_modules().begin(), proto.target_modules().end()}, field));
  }
  std::vector<Family> families = FamiliesOf(proto);
  RETURN_IF_ERROR(AddFamiliesOf(modules, field, families));
  if (modules.empty()) {
    ASSIGN_OR_RETURN(modules, ModulesOfFamilies(families, defaults));
  }
  return LoraConfig{.rank = proto.rank(),
                    .alpha = with_alpha.has_alpha() ? with_alpha.alpha() : defaults.alpha,
                    .seed = proto.seed(),
                    .train_attn = families[0].is_on,
                    .train_mlp = families[1].is_on,
                    .train_unembed = families[2].is_on,
                    .target_modules = std::move(modules)};
}

}  // namespace lathe::engine
