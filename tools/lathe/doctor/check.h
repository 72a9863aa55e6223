// The checks of `lathe doctor`.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lathe/data_dir.h"

namespace lathe::cli {

enum class CheckState { kOk, kWarning, kError, kSkipped };

// The result of a check, of one thing that it looked at.
struct Finding {
  CheckState state = CheckState::kOk;
  std::string found;          // the value, with its unit
  std::string expected = "";  // the bound; empty: `found` says it all
  std::string remedy = "";    // what to do, a command where there is one
};

// The processes that will run on this machine.
enum class Role { kUp, kEngine, kGateway, kWorker, kRanks };

// The machine and the options that the checks look at.
struct CheckInput {
  Role role = Role::kUp;
  // True: other machines are not asked.
  bool is_offline = false;
  // True: checks that read whole files run too.
  bool is_deep = false;
  // Options of the role's program, by key, as its --show-config prints them. Secrets are masked.
  std::map<std::string, std::string> options;
  // The program's arguments, its path first.
  std::vector<std::string> command;
  // Errors of these options; empty: the program accepts them.
  std::string option_errors;
  // Stands for "/" in tests.
  std::filesystem::path root = "/";

  // Returns the value of an option; empty if the program does not have it.
  std::string Option(const std::string& key) const;
  // Returns the items of an option that is a list.
  std::vector<std::string> List(const std::string& key) const;
  // Returns the section of the role's own options: up, engine, gateway, worker or ranks.
  std::string Section() const;
  // Returns the section of the options of its workers: up or worker.
  std::string WorkerSection() const;
  // Returns the first item of an option that is a number or a list of them; 1 if there is none.
  int Number(const std::string& key) const;
  // Returns how many ranks run here.
  int NumRanks() const;
  // Returns the data directory of the role; an empty path if it has none.
  std::string DataDirPath() const;
  DataDir Data() const;
  // Returns the setting of the engine's store. Its password is masked unless the role is kUp.
  std::string Store() const;
  // Returns true if the database is a file in the data directory.
  bool IsSqlite() const;
  // Returns true if a Lathe runs in the data directory.
  bool IsRunning() const;
};

struct DoctorCheck {
  std::string_view name;         // GROUP.THING
  std::string_view why;          // what goes wrong otherwise
  std::vector<Role> roles = {};  // empty: all
  bool asks_other_machines = false;
  std::vector<Finding> (*run)(const CheckInput& input) = nullptr;
};

// The checks of each group, in the order in which they are shown.
const std::vector<DoctorCheck>& OptionChecks();
const std::vector<DoctorCheck>& HostChecks();
const std::vector<DoctorCheck>& FileChecks();
const std::vector<DoctorCheck>& StoreChecks();
const std::vector<DoctorCheck>& StorageChecks();
const std::vector<DoctorCheck>& NetworkChecks();
const std::vector<DoctorCheck>& ModelChecks();
const std::vector<DoctorCheck>& GpuChecks();
const std::vector<DoctorCheck>& ServiceChecks();

// "1.5 GiB"
std::string GibText(double bytes);

}  // namespace lathe::cli
