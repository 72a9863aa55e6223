#include "tools/lathe/keys_command.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

absl::Status Create(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string tenant;
  std::string name;
  std::vector<std::string> scopes;
  OptionSet options("lathe keys create", "Creates an API key and prints it, this once.");
  AddDataDirOptions(options, data);
  options.Add(&tenant, "keys.tenant", "", "whom the key is for; created when new",
              {.required = true});
  options.Add(&name, "keys.name", "", "a note for the list of keys");
  options.Add(&scopes, "keys.scope", {},
              "train, sample, read, checkpoints:write or admin; repeatable");
  RETURN_IF_ERROR(options.Parse(argc, argv));

  v1::CreateKeyRequest request;
  request.set_tenant(tenant);
  request.set_name(name);
  request.mutable_scopes()->Assign(scopes.begin(), scopes.end());
  ASSIGN_OR_RETURN(const v1::CreateKeyResponse key,
                   AdminClient(OpenDataDir(data)).CreateKey(request));
  std::fprintf(stderr, "key id %s\n", key.key_id().c_str());
  std::printf("%s\n", key.api_key().c_str());
  return absl::OkStatus();
}

absl::Status List(int argc, const char* const* argv) {
  DataDirOptions data;
  OptionSet options("lathe keys list", "Lists the API keys, without their secrets.");
  AddDataDirOptions(options, data);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const v1::ListKeysResponse list, AdminClient(OpenDataDir(data)).ListKeys());
  std::printf("%-24s %-16s %-20s %-8s %-40s %s\n", "KEY ID", "TENANT", "CREATED", "STATE", "SCOPES",
              "NAME");
  for (const v1::ApiKeyInfo& key : list.keys()) {
    const std::string created =
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(key.created_at().seconds()),
                         absl::UTCTimeZone());
    std::printf("%-24s %-16s %-20s %-8s %-40s %s\n", key.key_id().c_str(), key.tenant().c_str(),
                created.c_str(), key.revoked() ? "revoked" : "active",
                absl::StrJoin(key.scopes(), ",").c_str(), key.name().c_str());
  }
  return absl::OkStatus();
}

absl::Status Revoke(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string key_id;
  OptionSet options("lathe keys revoke", "Ends a key at once.");
  AddDataDirOptions(options, data);
  options.AddPositional(&key_id, "KEY_ID", "as `lathe keys list` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  return AdminClient(OpenDataDir(data)).RevokeKey(key_id);
}

}  // namespace

absl::Status KeysCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "create") return Create(argc - 1, argv + 1);
  if (action == "list") return List(argc - 1, argv + 1);
  if (action == "revoke") return Revoke(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError(
                        "lathe keys needs one of create --tenant NAME, list, revoke KEY_ID"),
                    "usage");
}

}  // namespace lathe::cli
