// The command line: `lathe VERB …`.
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "libs/common/errors.h"
#include "libs/common/version.h"
#include "tools/lathe/commands/audit_command.h"
#include "tools/lathe/commands/backup_command.h"
#include "tools/lathe/commands/certs_command.h"
#include "tools/lathe/commands/checkpoints_command.h"
#include "tools/lathe/commands/config_command.h"
#include "tools/lathe/commands/doctor_command.h"
#include "tools/lathe/commands/drain_command.h"
#include "tools/lathe/commands/export_command.h"
#include "tools/lathe/commands/group_command.h"
#include "tools/lathe/commands/keys_command.h"
#include "tools/lathe/commands/logs_command.h"
#include "tools/lathe/commands/metrics_command.h"
#include "tools/lathe/commands/probe_command.h"
#include "tools/lathe/commands/ranks_command.h"
#include "tools/lathe/commands/runs_command.h"
#include "tools/lathe/commands/secrets_command.h"
#include "tools/lathe/commands/selftest_command.h"
#include "tools/lathe/commands/status_command.h"
#include "tools/lathe/commands/tenants_command.h"
#include "tools/lathe/commands/top_command.h"
#include "tools/lathe/commands/up_command.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

struct Verb {
  std::string_view name;
  absl::Status (*run)(int argc, const char* const* argv);
  // Its lines of `lathe --help`.
  std::string_view help;
};

constexpr Verb kVerbs[] = {
    {"up", UpCommand, "  lathe up --model ./Qwen3-0.6B        starts engine, worker and gateway\n"},
    {"ranks", RanksCommand,
     "  lathe ranks --ranks 4-7 …            starts ranks of a worker on another machine\n"},
    {"status", StatusCommand,
     "  lathe status                         shows what a running Lathe holds\n"},
    {"top", TopCommand,
     "  lathe top                            shows groups, tenants and runs, live\n"},
    {"runs", RunsCommand,
     "  lathe runs                           lists the newest training runs\n"
     "  lathe runs show RUN                  tells all about one\n"},
    {"logs", LogsCommand, "  lathe logs RUN [-f]                  shows what happened to a run\n"},
    {"probe", ProbeCommand,
     "  lathe probe --ready                  asks a process of this machine; exit code 0 or 1\n"},
    {"drain", DrainCommand,
     "  lathe drain --wait 30s               asks a process of this machine to drain and end\n"},
    {"move", MoveCommand,
     "  lathe move MODEL_ID --to GROUP       moves a model to another worker group\n"},
    {"group", GroupCommand,
     "  lathe group drain GROUP [--wait 2m]  moves its models to other groups\n"
     "  lathe group resume GROUP             puts it back into service\n"
     "  lathe group remove GROUP             forgets a group that has ended for good\n"},
    {"keys", KeysCommand,
     "  lathe keys create --tenant NAME      makes an API key\n"
     "  lathe keys list                      lists the keys\n"
     "  lathe keys revoke KEY_ID             ends a key\n"
     "  lathe keys rotate KEY_ID             makes a key that replaces this one\n"},
    {"tenants", TenantsCommand,
     "  lathe tenants list                   lists limits and usage of the tenants\n"
     "  lathe tenants set-quota TENANT --tokens-per-minute 100000\n"},
    {"metrics", MetricsCommand,
     "  lathe metrics follow LOG --run RUN   appends a training program's metrics to its run\n"
     "  lathe metrics show RUN               prints the newest values of a run\n"},
    {"audit", AuditCommand, "  lathe audit export --before DATE --out FILE [--prune]\n"},
    {"checkpoints", CheckpointsCommand,
     "  lathe checkpoints trash              lists the folders in the trash\n"
     "  lathe checkpoints adopt DIR          makes one of them a checkpoint again\n"},
    {"backup", BackupCommand,
     "  lathe backup --out DIR               copies database and files while the service runs\n"},
    {"restore", RestoreCommand,
     "  lathe restore --from DIR             fills an empty data directory from a backup\n"},
    {"certs", CertsCommand,
     "  lathe certs init --out DIR --name N  makes a private CA and certificates, or renews them\n"
     "  lathe certs renew --out DIR          renews those that end soon\n"},
    {"secrets", SecretsCommand,
     "  lathe secrets init --out DIR         makes the first admin key and the cluster's "
     "secrets\n"},
    {"selftest", SelftestCommand,
     "  lathe selftest --url URL             trains one step and samples over the API\n"},
    {"config", ConfigCommand,
     "  lathe config check FILE              says whether every program accepts a file\n"},
    {"doctor", DoctorCommand,
     "  lathe doctor                         looks for what would stop Lathe on this machine\n"},
    {"export", ExportCommand,
     "  lathe export --merged tinker://… --model ./Qwen3-0.6B --out ./merged\n"},
};

std::string Help() {
  std::string help =
      "Lathe: a self-hosted post-training service that speaks the Tinker API.\n"
      "\n";
  for (const Verb& verb : kVerbs) help += verb.help;
  return help +
         "  lathe version\n"
         "\n"
         "Every verb has --help.\n";
}

absl::Status Run(int argc, const char* const* argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Verb& verb : kVerbs) {
    if (verb.name == name) return verb.run(argc - 1, argv + 1);
  }
  if (name == "version" || name == "--version") {
    return absl::CancelledError("lathe " + std::string(kVersion) + "\n");
  }
  if (name == "help" || name == "--help" || name == "-h") return absl::CancelledError(Help());
  return WithDetail(absl::InvalidArgumentError(name.empty() ? "no verb given; try lathe --help"
                                                            : "unknown verb '" + std::string(name) +
                                                                  "'; try lathe --help"),
                    "usage");
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) { return lathe::cli::Report(lathe::cli::Run(argc, argv)); }
