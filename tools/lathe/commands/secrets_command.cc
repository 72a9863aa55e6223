#include "tools/lathe/commands/secrets_command.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "libs/common/api_key/api_key.h"
#include "libs/common/config/option_set.h"
#include "libs/common/config/secret_file.h"
#include "libs/common/errors.h"
#include "libs/common/random/random_id.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

constexpr std::size_t kWorkerSecretBytes = 32;

// Returns the secret in the file, which `make` fills if it is missing.
absl::StatusOr<std::string> Ensure(const std::filesystem::path& path,
                                   const std::function<std::string()>& make) {
  absl::StatusOr<std::string> secret = LoadSecretFile(path.string());
  const bool is_new = absl::IsNotFound(secret.status());
  if (is_new) {
    secret = make();
    RETURN_IF_ERROR(WriteFileAtomically(path, *secret + "\n", 0600));
  }
  if (!secret.ok()) {
    return WithDetail(absl::InvalidArgumentError(std::string(secret.status().message())),
                      "configuration");
  }
  std::printf("%s %s\n", path.filename().c_str(), is_new ? "made" : "kept");
  return secret;
}

absl::Status MakeAll(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (dir.has_parent_path()) std::filesystem::create_directories(dir.parent_path(), ignored);
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return WithDetail(
        absl::InternalError(absl::StrCat("cannot make ", dir.string(), ": ", std::strerror(errno))),
        "cannot_create");
  }
  RETURN_IF_ERROR(Ensure(dir / "admin.key", [] { return MakeApiKey().text; }).status());
  ASSIGN_OR_RETURN(const std::string worker,
                   Ensure(dir / "worker.secret", [] { return RandomId(kWorkerSecretBytes); }));
  return Ensure(dir / "gateway.secret", [&worker] { return GatewaySecretOf(worker); }).status();
}

}  // namespace

absl::Status SecretsCommand(int argc, const char* const* argv) {
  if (argc < 2 || std::strcmp(argv[1], "init") != 0) {
    return UsageError("lathe secrets needs init --out DIR");
  }
  std::string dir;
  OptionSet set("lathe secrets init",
                "Makes admin.key, worker.secret and gateway.secret in a folder, if they are "
                "missing, and prints none of\nthem. They are files for engine.admin_key_file, "
                "engine.worker_secret_file and the secret_file of\nworkers and gateways.");
  set.Add(&dir, "secrets.out", "", "folder of the files", {.required = true});
  RETURN_IF_ERROR(set.Parse(argc - 1, argv + 1));
  return MakeAll(dir);
}

}  // namespace lathe::cli
