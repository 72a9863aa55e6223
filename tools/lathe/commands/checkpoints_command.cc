#include "tools/lathe/commands/checkpoints_command.h"

#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

absl::Status ListTrash(int argc, const char* const* argv) {
  DataDirOptions data;
  OptionSet options("lathe checkpoints trash",
                    "Lists the checkpoint folders that no row of the database named when an engine "
                    "started. The engine deletes them after engine.trash_kept.");
  AddDataDirOptions(options, data);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const v1::ListTrashResponse list, AdminClient(OpenDataDir(data)).ListTrash());
  std::printf("%-33s %14s %-16s %s\n", "DIR", "BYTES", "TENANT", "PATH");
  for (const v1::TrashedFolder& folder : list.folders()) {
    const bool is_checkpoint = folder.reason().empty();
    const std::string what =
        is_checkpoint ? folder.tinker_path() : absl::StrCat("(", folder.reason(), ")");
    std::printf("%-33s %14s %-16s %s\n", folder.dir().c_str(),
                absl::StrCat(folder.size_bytes()).c_str(), folder.tenant().c_str(), what.c_str());
  }
  return absl::OkStatus();
}

absl::Status Adopt(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string dir, tenant;
  OptionSet options("lathe checkpoints adopt",
                    "Makes a folder in the trash the checkpoint that its manifest describes, and "
                    "prints its path.");
  AddDataDirOptions(options, data);
  options.Add(&tenant, "checkpoints.tenant", "",
              "tenant that owns it from now on; empty: the one that the manifest names");
  options.AddPositional(&dir, "DIR", "as `lathe checkpoints trash` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  v1::AdoptCheckpointRequest request;
  request.set_dir(dir);
  request.set_tenant(tenant);
  ASSIGN_OR_RETURN(const v1::AdoptCheckpointResponse adopted,
                   AdminClient(OpenDataDir(data)).AdoptCheckpoint(request));
  std::printf("%s\n", adopted.tinker_path().c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckpointsCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "trash") return ListTrash(argc - 1, argv + 1);
  if (action == "adopt") return Adopt(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError("lathe checkpoints needs one of trash, adopt DIR"),
                    "usage");
}

}  // namespace lathe::cli
