// The options of one process: flag > environment > YAML file > default.
//
//   OptionSet options("lathe-gateway", "Serves the Tinker API over HTTP.");
//   options.Add(&listen, "gateway.listen", "127.0.0.1:8080", "address of the API, HOST:PORT");
//   options.ParseOrExit(argc, argv);
//
// Key `section.name` is the flag --name (underscores become dashes), the environment variable
// LATHE_SECTION__NAME and, in the file given by --config, `section: {name: value}`. An unknown
// flag, or an unknown key of a section that this process has, is an error that names the nearest
// key; sections of other processes (see kSections) are left to them, so that one file serves all.
#pragma once

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
// To be started again: it was told to end, or was replaced.
inline constexpr int kExitTemporary = 75;
// To be started again: a rank that has lost another of its group, and nothing is wrong with it.
inline constexpr int kExitPeerGone = 76;
inline constexpr int kExitPermission = 77;
inline constexpr int kExitConfiguration = 78;

struct OptionTraits {
  // Long flag without dashes; empty: the key's last part.
  std::string flag = "";
  // Must be given by one of the sources.
  bool required = false;
  // Shown as *** in dumps, and no flag: command lines are public.
  bool secret = false;
  // A URL whose password dumps show as ***.
  bool may_hold_password = false;
  // Empty: any.
  std::vector<std::string> choices = {};
};

// Built in main, used before any thread starts; the variables must outlive it.
class OptionSet {
 public:
  OptionSet(std::string program, std::string description);

  // `*target` gets the default at once. T is std::string, int, int64_t, double, bool,
  // absl::Duration or std::vector<std::string>.
  template <typename T>
  void Add(T* target, std::string key, std::type_identity_t<T> default_value, std::string help,
           OptionTraits traits = {}) {
    *target = std::move(default_value);
    AddOption(OptionTarget(target), std::move(key), std::move(help), std::move(traits));
  }

  // A word without dashes; always required.
  void AddPositional(std::string* target, std::string name, std::string help);

  // InvalidArgument with the word (ErrorCode) "usage" for flags and "configuration" for the rest.
  // Cancelled with the text to print for --help, --version and --show-config.
  absl::Status Parse(int argc, const char* const* argv);

  // As Parse; prints and ends the process: 0 after --help and the like, 2 for usage, 78 for
  // configuration.
  void ParseOrExit(int argc, const char* const* argv);

  // The argument of --config; empty: none.
  const std::string& config_path() const { return config_path_; }

  // A line `key = value  # origin` for each option, secrets masked.
  std::string DumpWithOrigin() const;

 private:
  struct Option {
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
  };
  struct FlagValues;

  void AddOption(OptionTarget target, std::string key, std::string help, OptionTraits traits);
  absl::Status ReadFlags(int argc, const char* const* argv, FlagValues& flags);
  // What is wrong there is added to `wrong`, all of it.
  void ApplyFile(const std::string& path, std::vector<std::string>& wrong);
  void ApplyEnvironment(std::vector<std::string>& wrong);
  // Of a key that came from `where`.
  absl::Status ApplyEntry(const std::string& key, const std::vector<std::string>& values,
                          const std::string& where);
  absl::Status ApplyFlags(const FlagValues& flags);
  absl::Status CheckRequired() const;
  absl::Status Set(Option& option, const std::vector<std::string>& values, std::string origin);
  // Null when there is none.
  Option* Find(const std::string& key);
  // Whether an unknown `key` (section.name) may belong to another process.
  absl::Status CheckForeign(const std::string& key, const std::string& where) const;

  const std::string program_;
  const std::string description_;
  std::vector<Option> options_;
  std::vector<Positional> positionals_;
  std::string config_path_;
};

}  // namespace lathe
