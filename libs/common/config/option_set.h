// The options of one process: flag > environment > YAML file > default.
//
//   OptionSet options("lathe-gateway", "Serves the Tinker API over HTTP.");
//   options.Add(&listen, "gateway.listen", "127.0.0.1:8080", "address of the API, HOST:PORT");
//   options.ParseOrExit(argc, argv);
//
// --check-config only says whether the values are valid (exit codes 0 and 78).
//
// Key `section.name` is the flag --name (underscores become dashes), the environment variable
// LATHE_SECTION__NAME and, in the file of --config, `section: {name: value}`. An unknown flag is an
// error that names the nearest key. So is an unknown key of a section that this process has.
// Sections of other processes (see kSections) are ignored, so that one file serves all processes.
//
// An option that is secret or may hold a password has a companion `section.name_file`, with a flag,
// LATHE_SECTION__NAME_FILE and a key of its own: the path of a file with the value, as
// orchestrators mount secrets. Parse reads it (LoadSecretFile) and refuses both in one process.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/config/option_value.h"

namespace lathe {

// Exit codes of every Lathe program (sysexits.h).
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnavailable = 69;
inline constexpr int kExitSoftware = 70;
inline constexpr int kExitCannotCreate = 73;
// The process wants a restart: it was asked to end, it was replaced, or its GPU is lost.
inline constexpr int kExitTemporary = 75;
// The process wants a restart: it is a healthy rank that lost another rank of its group.
inline constexpr int kExitPeerGone = 76;
inline constexpr int kExitPermission = 77;
inline constexpr int kExitConfiguration = 78;

struct OptionTraits {
  // Long flag without dashes; empty: the last part of the key.
  std::string flag = "";
  // True if one of the sources must set the option.
  bool required = false;
  // The option is of another program's section: it has no flag here, and other keys of its section
  // are not refused as unknown.
  bool borrowed = false;
  // Dumps show the value as ***. The option has no flag, because command lines are public.
  bool secret = false;
  // The value is a URL; dumps show its password as ***, and all of a value from a file.
  bool may_hold_password = false;
  // Allowed values; empty: any value.
  std::vector<std::string> choices = {};
  // Lists come from a repeated flag, a YAML list, or text with commas. True if their items may have
  // commas, so that text is one item.
  bool keeps_commas = false;
};

// Constructed in main and used before any thread starts. The variables must outlive it.
class OptionSet {
 public:
  OptionSet(std::string program, std::string description);

  // Adds an option and sets `*target` to the default at once. T is std::string, int, int64_t,
  // double, bool, absl::Duration, or a std::vector of std::string, int or double.
  template <typename T>
  void Add(T* target, std::string key, std::type_identity_t<T> default_value, std::string help,
           OptionTraits traits = {}) {
    *target = std::move(default_value);
    AddOption(OptionTarget(target), std::move(key), std::move(help), std::move(traits));
  }

  // Adds an argument without dashes.
  void AddPositional(std::string* target, std::string name, std::string help, bool required = true);

  // Sets the bounds of the values, which --check-config verifies. `check` returns InvalidArgument.
  void SetCheck(std::function<absl::Status()> check) { check_ = std::move(check); }

  // Returns InvalidArgument with the code (ErrorCode) "usage" for flags and "configuration" for
  // other sources. Returns Cancelled with the text to print for --help, --version, --show-config
  // and --check-config. The last two do not demand required options, which may be flags elsewhere.
  absl::Status Parse(int argc, const char* const* argv);

  // Like Parse, but prints the message and exits: 0 after --help and the like, 2 for usage, 78 for
  // configuration.
  void ParseOrExit(int argc, const char* const* argv);

  // Argument of --config; empty: none.
  const std::string& config_path() const { return config_path_; }

  // Returns a line `key = value  # origin` for each option, with secrets masked.
  std::string DumpWithOrigin() const;

 private:
  struct Option {
    bool is_set() const { return origin != "default"; }

    OptionTarget target;
    std::string key;
    std::string help;
    OptionTraits traits;
    std::string origin = "default";
  };
  struct Positional {
    std::string* target;
    std::string name;
    std::string help;
    bool required;
  };
  struct FlagValues;

  void AddOption(OptionTarget target, std::string key, std::string help, OptionTraits traits);
  void AddFileOf(const std::string& key);
  // Sets the options whose files are given.
  absl::Status ReadSecretFiles();
  absl::Status ReadFlags(int argc, const char* const* argv, FlagValues& flags);
  // Applies the file. Appends every error in it to `wrong`.
  void ApplyFile(const std::string& path, std::vector<std::string>& wrong);
  void ApplyEnvironment(std::vector<std::string>& wrong);
  // Applies one key that came from `where`.
  absl::Status ApplyEntry(const std::string& key, const std::vector<std::string>& values,
                          const std::string& where);
  absl::Status ApplyFlags(const FlagValues& flags);
  absl::Status CheckRequired() const;
  absl::Status Set(Option& option, const std::vector<std::string>& values, std::string origin);
  // Returns null when there is no such option.
  Option* Find(const std::string& key);
  // Returns OK if an unknown `key` (section.name) may belong to another process.
  absl::Status CheckForeign(const std::string& key, const std::string& where) const;

  const std::string program_;
  const std::string description_;
  std::vector<Option> options_;
  // Paths of secrets' files by the key of the secret. A map does not move its elements.
  std::map<std::string, std::string> secret_files_;
  std::vector<Positional> positionals_;
  std::function<absl::Status()> check_;
  std::string config_path_;
};

}  // namespace lathe
