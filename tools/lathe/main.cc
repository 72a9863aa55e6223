// The command line: `lathe VERB …`.
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "libs/common/errors.h"
#include "libs/common/version.h"
#include "tools/lathe/commands/export_command.h"
#include "tools/lathe/commands/group_command.h"
#include "tools/lathe/commands/keys_command.h"
#include "tools/lathe/commands/ranks_command.h"
#include "tools/lathe/commands/status_command.h"
#include "tools/lathe/commands/tenants_command.h"
#include "tools/lathe/commands/up_command.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

constexpr char kHelp[] =
    "Lathe: a self-hosted post-training service that speaks the Tinker API.\n"
    "\n"
    "  lathe up --model ./Qwen3-0.6B        start engine, worker and gateway\n"
    "  lathe ranks --ranks 4-7 …            ranks of a worker on another machine\n"
    "  lathe status                         what a running one holds\n"
    "  lathe move MODEL_ID --to GROUP       a model to another worker group\n"
    "  lathe group drain GROUP              its models to others, before it is taken away\n"
    "  lathe group resume GROUP             use it again\n"
    "  lathe keys create --tenant NAME      a new API key\n"
    "  lathe keys list\n"
    "  lathe keys revoke KEY_ID\n"
    "  lathe keys rotate KEY_ID             a new key in its place\n"
    "  lathe tenants list                   limits and usage of the tenants\n"
    "  lathe tenants set-quota TENANT --tokens-per-minute 100000\n"
    "  lathe export --merged tinker://… --model ./Qwen3-0.6B --out ./merged\n"
    "  lathe version\n"
    "\n"
    "Every verb has --help.\n";

absl::Status Run(int argc, const char* const* argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "ranks") return RanksCommand(argc - 1, argv + 1);
  if (verb == "up") return UpCommand(argc - 1, argv + 1);
  if (verb == "keys") return KeysCommand(argc - 1, argv + 1);
  if (verb == "tenants") return TenantsCommand(argc - 1, argv + 1);
  if (verb == "move") return MoveCommand(argc - 1, argv + 1);
  if (verb == "group") return GroupCommand(argc - 1, argv + 1);
  if (verb == "export") return ExportCommand(argc - 1, argv + 1);
  if (verb == "status") return StatusCommand(argc - 1, argv + 1);
  if (verb == "version" || verb == "--version") {
    return absl::CancelledError("lathe " + std::string(kVersion) + "\n");
  }
  if (verb == "help" || verb == "--help" || verb == "-h") return absl::CancelledError(kHelp);
  return WithDetail(absl::InvalidArgumentError(verb.empty() ? "no verb given; try lathe --help"
                                                            : "unknown verb '" + std::string(verb) +
                                                                  "'; try lathe --help"),
                    "usage");
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) { return lathe::cli::Report(lathe::cli::Run(argc, argv)); }
