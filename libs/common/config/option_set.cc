#include "libs/common/config/option_set.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <regex>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "libs/common/config/nearest_key.h"
#include "libs/common/config/option_sources.h"
#include "libs/common/config/secret_file.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/version.h"

namespace lathe {
namespace {

// All sections that Lathe processes read.
constexpr std::array kSections = {
    "doctor", "up",      "data",    "keys",    "status",   "gateway", "engine",  "worker",
    "lora",   "export",  "log",     "metrics", "ranks",    "move",    "tenants", "checkpoints",
    "audit",  "probe",   "certs",   "drain",   "selftest", "secrets", "group",   "storage",
    "backup", "restore", "tracing", "api",     "runs",     "logs",    "top",     "auth"};

// Keys of sections that belong to several processes.
constexpr std::array kSharedKeys = {"metrics.gateway_listen",
                                    "metrics.engine_listen",
                                    "metrics.worker_listen",
                                    "metrics.keep",
                                    "metrics.keep_points_per_series",
                                    "metrics.max_series_per_tenant",
                                    "auth.session",
                                    "auth.session_idle",
                                    "auth.role_map",
                                    "auth.oidc_issuer",
                                    "auth.oidc_name",
                                    "auth.oidc_client_id",
                                    "auth.oidc_client_secret",
                                    "auth.oidc_client_secret_file",
                                    "auth.oidc_scopes",
                                    "auth.oidc_algorithms",
                                    "auth.oidc_claims",
                                    "storage.cache_dir",
                                    "storage.cache_mib"};

absl::Status UsageError(const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), "usage");
}

absl::Status ConfigurationError(const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), "configuration");
}

std::string SectionOf(const std::string& key) { return key.substr(0, key.find('.')); }

std::string FlagOf(const std::string& key, const OptionTraits& traits) {
  if (!traits.flag.empty()) return traits.flag;
  return absl::StrReplaceAll(key.substr(key.rfind('.') + 1), {{"_", "-"}});
}

// Returns `words` in which a flag of `bool_flags` without a value has the value true. Otherwise
// CLI11 would take a positional word after it as its value.
std::vector<std::string> WithBoolValues(std::vector<std::string> words,
                                        const std::vector<std::string>& bool_flags) {
  for (size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    bool ignored = false;
    const bool has_value = i + 1 < words.size() && absl::SimpleAtob(words[i + 1], &ignored);
    if (has_value || std::count(bool_flags.begin(), bool_flags.end(), words[i]) == 0) continue;
    words[i] += "=true";
  }
  return words;
}

constexpr char kFileSuffix[] = "_file";

// Masks the passwords of postgres://user:PASSWORD@host/database?password=PASSWORD.
std::string HidePassword(const std::string& url) {
  static const std::regex in_authority("(://[^:/@]*:)[^/@]*@");
  static const std::regex in_query("([?&](?:ssl)?password=)[^&]*");
  return std::regex_replace(std::regex_replace(url, in_authority, "$1***@"), in_query, "$1***");
}

}  // namespace

// Values from the command line, by key.
struct OptionSet::FlagValues {
  std::map<std::string, std::vector<std::string>> values;
  std::string config_path;
  bool show_config = false;
  bool check_config = false;
};

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

void OptionSet::AddOption(OptionTarget target, std::string key, std::string help,
                          OptionTraits traits) {
  const bool is_secret = traits.secret || traits.may_hold_password;
  options_.push_back({target, std::move(key), std::move(help), std::move(traits)});
  if (is_secret && !options_.back().traits.borrowed) AddFileOf(options_.back().key);
}

void OptionSet::AddFileOf(const std::string& key) {
  OptionTraits traits;
  const std::string& flag = options_.back().traits.flag;
  if (!flag.empty()) traits.flag = flag + "-file";
  const std::string help = absl::StrCat("file with the value of ", key);
  options_.push_back({&secret_files_[key], key + kFileSuffix, help, std::move(traits)});
}

absl::Status OptionSet::ReadSecretFiles() {
  for (const auto& [key, path] : secret_files_) {
    if (path.empty()) continue;
    const Option& file = *Find(key + kFileSuffix);
    Option& option = *Find(key);
    if (option.is_set()) {
      return ConfigurationError(absl::StrCat(key, " (from ", option.origin, ") and ", file.key,
                                             " (from ", file.origin, ") are both given"));
    }
    const absl::StatusOr<std::string> text = LoadSecretFile(path);
    if (!text.ok()) {
      return ConfigurationError(
          absl::StrCat(file.key, ": ", text.status().message(), " (from ", file.origin, ")"));
    }
    // The error of Set would show the value.
    if (!Set(option, {*text}, file.key).ok()) {
      return ConfigurationError(
          absl::StrCat(file.key, ": the content of '", path, "' is no value of ", key));
    }
  }
  return absl::OkStatus();
}

void OptionSet::AddPositional(std::string* target, std::string name, std::string help,
                              bool required) {
  positionals_.push_back({target, std::move(name), std::move(help), required});
}

absl::Status OptionSet::Parse(int argc, const char* const* argv) {
  FlagValues flags;
  RETURN_IF_ERROR(ReadFlags(argc, argv, flags));
  config_path_ = flags.config_path;
  std::vector<std::string> wrong;
  if (!config_path_.empty()) ApplyFile(config_path_, wrong);
  ApplyEnvironment(wrong);
  if (!wrong.empty()) return ConfigurationError(absl::StrJoin(wrong, "\n"));
  RETURN_IF_ERROR(ApplyFlags(flags));
  RETURN_IF_ERROR(ReadSecretFiles());
  if (flags.show_config) return absl::CancelledError(DumpWithOrigin());
  if (flags.check_config) {
    const absl::Status valid = check_ ? check_() : absl::OkStatus();
    if (!valid.ok()) return ConfigurationError(std::string(valid.message()));
    return absl::CancelledError("the configuration is valid\n");
  }
  return CheckRequired();
}

void OptionSet::ParseOrExit(int argc, const char* const* argv) {
  const absl::Status status = Parse(argc, argv);
  if (status.ok()) return;
  const std::string message(status.message());
  if (absl::IsCancelled(status)) {
    std::fputs(message.c_str(), stdout);
    std::exit(0);
  }
  std::fprintf(stderr, "%s: %s\n", program_.c_str(), message.c_str());
  std::exit(ErrorCode(status) == "usage" ? kExitUsage : kExitConfiguration);
}

absl::Status OptionSet::ReadFlags(int argc, const char* const* argv, FlagValues& flags) {
  CLI::App app(description_, program_);
  const bool only_shows = std::any_of(argv, argv + argc, [](const char* argument) {
    return std::string_view(argument) == "--check-config" ||
           std::string_view(argument) == "--show-config";
  });
  app.set_version_flag("--version", std::string(kVersion));
  app.add_option("--config", flags.config_path, "YAML file");
  app.add_flag("--show-config", flags.show_config, "print every option with its origin");
  app.add_flag("--check-config", flags.check_config, "check the values of the options and end");
  std::vector<std::string> names = {"--config", "--show-config", "--check-config", "--help",
                                    "--version"};
  std::vector<std::string> bool_flags;
  std::map<std::string, CLI::Option*> by_key;
  for (Option& option : options_) {
    if (option.traits.secret || option.traits.borrowed) continue;
    names.push_back("--" + FlagOf(option.key, option.traits));
    // CLI11 takes a text that is not const as the variable to set, not as the description.
    const std::string& help = option.help;
    CLI::Option* flag = app.add_option(names.back(), help);
    const bool is_bool = std::holds_alternative<bool*>(option.target);
    const bool is_list = IsList(option.target);
    if (is_bool) bool_flags.push_back(names.back());
    if (is_list) flag->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (!is_list) flag->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    flag->type_name(is_bool ? "[BOOL]" : "VALUE");
    // CLI11 would use the default's text as the value of a flag without one.
    if (!is_bool) flag->default_str(OptionText(option.target));
    by_key[option.key] = flag;
  }
  for (Positional& positional : positionals_) {
    // CLI11 demands it only without --check-config and --show-config.
    app.add_option(positional.name, *positional.target, positional.help)
        ->required(positional.required && !only_shows);
  }
  app.allow_extras();
  try {
    std::vector<std::string> words = WithBoolValues({argv, argv + argc}, bool_flags);
    // CLI11 takes the words after the program's name in reverse.
    std::reverse(words.begin(), words.end());
    words.pop_back();
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return absl::CancelledError(app.help());
  } catch (const CLI::CallForVersion&) {
    return absl::CancelledError(absl::StrCat(program_, " ", std::string(kVersion), "\n"));
  } catch (const CLI::ParseError& error) {
    return UsageError(error.what());
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    const std::string word = extras.front().substr(0, extras.front().find('='));
    return UsageError(absl::StrCat("unknown argument '", word, "'", DidYouMean(word, names)));
  }
  for (const auto& [key, flag] : by_key) {
    if (flag->count() == 0) continue;
    flags.values[key] = flag->results();
  }
  return absl::OkStatus();
}

void OptionSet::ApplyFile(const std::string& path, std::vector<std::string>& wrong) {
  const auto entries = ReadConfigFile(path);
  if (!entries.ok()) return wrong.push_back(std::string(entries.status().message()));
  for (const ConfigEntry& entry : *entries) {
    const absl::Status status = ApplyEntry(entry.key, entry.values, entry.where);
    if (!status.ok()) wrong.push_back(std::string(status.message()));
  }
}

void OptionSet::ApplyEnvironment(std::vector<std::string>& wrong) {
  for (const EnvironmentEntry& entry : ReadEnvironment()) {
    const absl::Status status = ApplyEntry(entry.key, {entry.value}, entry.variable);
    if (!status.ok()) wrong.push_back(std::string(status.message()));
  }
}

absl::Status OptionSet::ApplyEntry(const std::string& key, const std::vector<std::string>& values,
                                   const std::string& where) {
  Option* option = Find(key);
  return option == nullptr ? CheckForeign(key, where) : Set(*option, values, where);
}

absl::Status OptionSet::ApplyFlags(const FlagValues& flags) {
  for (const auto& [key, values] : flags.values) {
    Option& option = *Find(key);
    const absl::Status status = Set(option, values, "--" + FlagOf(key, option.traits));
    if (!status.ok()) return UsageError(std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status OptionSet::CheckRequired() const {
  for (const Option& option : options_) {
    if (!option.traits.required || option.is_set()) continue;
    return UsageError(
        absl::StrCat("--", FlagOf(option.key, option.traits), " is missing: ", option.help));
  }
  return absl::OkStatus();
}

absl::Status OptionSet::Set(Option& option, const std::vector<std::string>& values,
                            std::string origin) {
  const absl::Status status = SetOption(option.target, values, option.traits.keeps_commas);
  if (!status.ok()) {
    return ConfigurationError(
        absl::StrCat(option.key, ": ", std::string(status.message()), " (from ", origin, ")"));
  }
  const auto& choices = option.traits.choices;
  const std::string text = OptionText(option.target);
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return ConfigurationError(absl::StrCat(option.key, " is '", text, "', expected one of ",
                                           absl::StrJoin(choices, ", "), " (from ", origin, ")"));
  }
  option.origin = std::move(origin);
  return absl::OkStatus();
}

OptionSet::Option* OptionSet::Find(const std::string& key) {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](auto& option) { return option.key == key; });
  return found == options_.end() ? nullptr : &*found;
}

absl::Status OptionSet::CheckForeign(const std::string& key, const std::string& where) const {
  const std::string section = SectionOf(key);
  std::vector<std::string> keys;
  bool is_ours = false;
  for (const Option& option : options_) {
    keys.push_back(option.key);
    is_ours = is_ours || (SectionOf(option.key) == section && !option.traits.borrowed);
  }
  const bool is_known = std::find(kSections.begin(), kSections.end(), section) != kSections.end();
  if (is_known && !is_ours) return absl::OkStatus();
  if (std::find(kSharedKeys.begin(), kSharedKeys.end(), key) != kSharedKeys.end()) {
    return absl::OkStatus();
  }
  return ConfigurationError(
      absl::StrCat("unknown key '", key, "' (from ", where, ")", DidYouMean(key, keys)));
}

std::string OptionSet::DumpWithOrigin() const {
  std::string dump;
  for (const Option& option : options_) {
    std::string text = OptionText(option.target);
    const bool is_from_file = option.origin == option.key + kFileSuffix;
    if ((option.traits.secret || is_from_file) && !text.empty()) text = "***";
    if (option.traits.may_hold_password) text = HidePassword(text);
    absl::StrAppend(&dump, option.key, " = ", text, "  # ", option.origin, "\n");
  }
  return dump;
}

}  // namespace lathe
