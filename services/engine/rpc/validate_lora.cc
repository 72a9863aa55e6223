#include "services/engine/rpc/validate_lora.h"

#include <algorithm>
#include <array>
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

std::string ListOf(const std::vector<LoraModule>& modules) {
  return modules.empty() ? "none" : absl::StrJoin(LoraModuleNames(modules), ", ");
}

// Returns `names` in the order of `known`. Errors show `known` after `whose`.
absl::StatusOr<std::vector<std::string>> CheckModules(const std::vector<std::string>& names,
                                                      const std::string& field,
                                                      const std::vector<LoraModule>& known,
                                                      const std::string& whose) {
  const std::vector<std::string> known_names = LoraModuleNames(known);
  for (const std::string& name : names) {
    if (!ContainsModule(known_names, name)) {
      return Invalid(
          kCode, field,
          absl::StrFormat("%s has '%s', %s %s", field, Shown(name), whose, ListOf(known)));
    }
    if (std::count(names.begin(), names.end(), name) > 1) {
      return Invalid(kCode, field, absl::StrFormat("%s has %s twice", field, name));
    }
  }
  return LoraModulesWhere(
      known, [&](const LoraModule& module) { return ContainsModule(names, module.name); });
}

const std::string* FindValue(const Metadata& metadata, const char* key) {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

struct Family {
  const char* flag;
  bool is_said;
  bool is_on;
};

// Indexed by LoraFamily.
using Families = std::array<Family, 3>;

Families FamiliesOf(const v1::LoraConfig& proto) {
  return {{{"train_attn", proto.has_train_attn(), proto.train_attn()},
           {"train_mlp", proto.has_train_mlp(), proto.train_mlp()},
           {"train_unembed", proto.has_train_unembed(), proto.train_unembed()}}};
}

size_t IndexOf(const LoraModule& module) { return static_cast<size_t>(module.family); }

// Enables unset families that have a module in `modules`.
absl::Status AddFamiliesOf(const std::vector<std::string>& modules, const std::string& field,
                           const BaseModelRow& base, Families& families) {
  for (const LoraModule& module : base.lora_modules) {
    if (!ContainsModule(modules, module.name)) continue;
    Family& family = families[IndexOf(module)];
    if (family.is_said && !family.is_on) {
      return Invalid(kCode, field,
                     absl::StrFormat("%s has %s, but lora_config.%s is false", field, module.name,
                                     family.flag));
    }
    family.is_on = true;
  }
  return absl::OkStatus();
}

absl::Status TrainsNothing(const std::string& reason) {
  return Invalid(kCode, "lora_config", absl::StrCat("lora_config trains nothing: ", reason));
}

// Returns the base model's modules that the enabled families include on this server.
absl::StatusOr<std::vector<std::string>> ModulesOfFamilies(const Families& families,
                                                           const LoraDefaults& defaults,
                                                           const BaseModelRow& base) {
  std::vector<std::string> flags;
  for (const Family& family : families) {
    if (family.is_on) flags.push_back(family.flag);
  }
  if (flags.empty()) {
    return TrainsNothing("one of train_attn, train_mlp and train_unembed must be true");
  }
  std::vector<std::string> asked = LoraModulesWhere(
      base.lora_modules, [&](const LoraModule& module) { return families[IndexOf(module)].is_on; });
  if (asked.empty()) {
    return TrainsNothing(absl::StrFormat("it asks for %s, base model '%s' has %s",
                                         absl::StrJoin(flags, ", "), base.name,
                                         ListOf(base.lora_modules)));
  }
  if (defaults.target_modules.empty()) return asked;
  std::vector<std::string> modules =
      LoraModulesWhere(base.lora_modules, [&](const LoraModule& module) {
        return ContainsModule(asked, module.name) &&
               ContainsModule(defaults.target_modules, module.name);
      });
  if (!modules.empty()) return modules;
  return TrainsNothing(
      absl::StrFormat("it asks for %s, this server's lora.target_modules are %s; name others in "
                      "target_modules",
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
    read.mutable_target_modules()->Assign(names.begin(), names.end());
  }
  return read;
}

absl::StatusOr<LoraDefaults> MakeLoraDefaults(double alpha,
                                              const std::vector<std::string>& target_modules) {
  constexpr char kOption[] = "lora.target_modules";
  RETURN_IF_ERROR(CheckAlpha(alpha, "lora.alpha"));
  LoraDefaults defaults{.alpha = alpha, .target_modules = {}};
  if (target_modules == std::vector<std::string>{kAllModules}) return defaults;
  // No worker has said yet what its base model has. Dense decoders have all names that workers of
  // this version know.
  ASSIGN_OR_RETURN(defaults.target_modules,
                   CheckModules(target_modules, kOption, DenseLoraModules(), "known are"));
  if (!defaults.target_modules.empty()) return defaults;
  return Invalid(kCode, kOption, absl::StrFormat("%s is empty, expected at least one", kOption));
}

absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const Metadata& metadata,
                                        const LoraDefaults& defaults, const BaseModelRow& base) {
  if (proto.rank() < 1 || proto.rank() > base.max_lora_rank) {
    return Invalid(kCode, "lora_config.rank",
                   absl::StrFormat("lora_config.rank is %d, expected 1 to %d", proto.rank(),
                                   base.max_lora_rank));
  }
  ASSIGN_OR_RETURN(const v1::LoraConfig in_metadata, ReadLoraMetadata(metadata));
  if (proto.has_alpha()) {
    if (in_metadata.has_alpha()) return GivenTwice(kAlphaField, kLoraAlphaKey);
    RETURN_IF_ERROR(CheckAlpha(proto.alpha(), kAlphaField));
  }
  const v1::LoraConfig& with_alpha = proto.has_alpha() ? proto : in_metadata;
  const bool by_field = !proto.target_modules().empty();
  if (by_field && !in_metadata.target_modules().empty()) {
    return GivenTwice(kModulesField, kTargetModulesKey);
  }
  const v1::LoraConfig& with_modules = by_field ? proto : in_metadata;
  const std::string field =
      by_field ? kModulesField : absl::StrCat("user_metadata.", kTargetModulesKey);
  ASSIGN_OR_RETURN(
      std::vector<std::string> modules,
      CheckModules({with_modules.target_modules().begin(), with_modules.target_modules().end()},
                   field, base.lora_modules, absl::StrFormat("base model '%s' has", base.name)));
  Families families = FamiliesOf(proto);
  RETURN_IF_ERROR(AddFamiliesOf(modules, field, base, families));
  if (modules.empty()) {
    ASSIGN_OR_RETURN(modules, ModulesOfFamilies(families, defaults, base));
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
