#include "tools/lathe/commands/keys_command.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

// Parses a number of days ("30d") or an absl::Duration ("12h30m"). `field` names the option in
// errors.
absl::StatusOr<absl::Duration> ParseSpan(const std::string& text, const char* field) {
  int64_t num_days = 0;
  absl::string_view days = text;
  if (absl::ConsumeSuffix(&days, "d") && absl::SimpleAtoi(days, &num_days)) {
    return num_days * absl::Hours(24);
  }
  absl::Duration span;
  if (absl::ParseDuration(text, &span)) return span;
  return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                        field, " is '", text, "', expected a time with unit, such as 30d or 12h")),
                    "usage", field);
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

const char* StateOf(const v1::ApiKeyInfo& key) {
  if (key.revoked()) return "revoked";
  const bool has_ended =
      key.has_expires_at() && absl::FromUnixSeconds(key.expires_at().seconds()) <= absl::Now();
  return has_ended ? "expired" : "active";
}

// Prints only the key on standard output, for scripts; the rest goes to standard error.
template <typename Response>
void PrintNewKey(const Response& key) {
  std::fprintf(stderr, "key id %s\n", key.key_id().c_str());
  if (key.has_expires_at()) {
    std::fprintf(stderr, "expires %s\n", TimeText(key.expires_at()).c_str());
  }
  std::printf("%s\n", key.api_key().c_str());
}

absl::Status Create(int argc, const char* const* argv) {
  DataDirOptions data;
  std::string tenant;
  std::string name;
  std::vector<std::string> scopes;
  OptionSet options("lathe keys create", "Creates an API key and prints it, this once.");
  AddDataDirOptions(options, data);
  options.Add(&tenant, "keys.tenant", "", "tenant of the key; created if it does not exist",
              {.required = true});
  options.Add(&name, "keys.name", "", "a note for the list of keys");
  options.Add(&scopes, "keys.scope", {},
              "train, sample, read, checkpoints:write, admin or operator; repeatable");
  std::string expires;
  options.Add(&expires, "keys.expires", "never",
              "lifetime of the key: never, or a time such as 30d, 12h or 1h30m");
  RETURN_IF_ERROR(options.Parse(argc, argv));

  v1::CreateKeyRequest request;
  request.set_tenant(tenant);
  request.set_name(name);
  request.mutable_scopes()->Assign(scopes.begin(), scopes.end());
  if (expires != "never") {
    ASSIGN_OR_RETURN(const absl::Duration lifetime, ParseSpan(expires, "expires"));
    request.set_expires_in_seconds(absl::ToInt64Seconds(lifetime));
  }
  ASSIGN_OR_RETURN(const v1::CreateKeyResponse key,
                   AdminClient(OpenDataDir(data)).CreateKey(request));
  PrintNewKey(key);
  return absl::OkStatus();
}

absl::Status ListKeys(int argc, const char* const* argv) {
  DataDirOptions data;
  OptionSet options("lathe keys list", "Lists the API keys, without their secrets.");
  AddDataDirOptions(options, data);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const v1::ListKeysResponse list, AdminClient(OpenDataDir(data)).ListKeys());
  std::printf("%-24s %-16s %-20s %-20s %-8s %-40s %s\n", "KEY ID", "TENANT", "CREATED", "EXPIRES",
              "STATE", "SCOPES", "NAME");
  for (const v1::ApiKeyInfo& key : list.keys()) {
    const std::string created = TimeText(key.created_at());
    const std::string expires = key.has_expires_at() ? TimeText(key.expires_at()) : "never";
    std::printf("%-24s %-16s %-20s %-20s %-8s %-40s %s\n", key.key_id().c_str(),
                key.tenant().c_str(), created.c_str(), expires.c_str(), StateOf(key),
                absl::StrJoin(key.scopes(), ",").c_str(), key.name().c_str());
  }
  return absl::OkStatus();
}

absl::Status Rotate(int argc, const char* const* argv) {
  DataDirOptions data;
  v1::RotateKeyRequest request;
  std::string key_id;
  std::string overlap;
  OptionSet options("lathe keys rotate",
                    "Makes a key with the same rights and prints it, this once; the old one ends "
                    "after the overlap.");
  AddDataDirOptions(options, data);
  options.Add(&overlap, "keys.overlap", "24h",
              "time for which the old key still works; 0: it ends at once");
  options.AddPositional(&key_id, "KEY_ID", "as `lathe keys list` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  request.set_key_id(key_id);
  ASSIGN_OR_RETURN(const absl::Duration span, ParseSpan(overlap, "overlap"));
  request.set_overlap_seconds(absl::ToInt64Seconds(span));
  ASSIGN_OR_RETURN(const v1::RotateKeyResponse key,
                   AdminClient(OpenDataDir(data)).RotateKey(request));
  PrintNewKey(key);
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
  if (action == "list") return ListKeys(argc - 1, argv + 1);
  if (action == "revoke") return Revoke(argc - 1, argv + 1);
  if (action == "rotate") return Rotate(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError(
                        "lathe keys needs one of create --tenant NAME, list, revoke KEY_ID, "
                        "rotate KEY_ID"),
                    "usage");
}

}  // namespace lathe::cli
