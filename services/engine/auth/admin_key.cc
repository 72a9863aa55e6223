#include "services/engine/auth/admin_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/api_key/api_key.h"
#include "libs/common/config/secret_file.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr char kTenant[] = "default";
constexpr char kKeyName[] = "admin_key_file";
constexpr char kAdmin[] = "admin";
constexpr char kOperator[] = "operator";

absl::Status Refuse(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("admin_key_file: ", why));
}

// Returns nullopt if there is no file.
absl::StatusOr<std::optional<std::string>> ReadKey(const std::string& path) {
  const absl::StatusOr<std::string> text = LoadSecretFile(path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return Refuse(std::string(text.status().message()));
  if (!ParseKeyId(*text)) return Refuse(absl::StrCat("'", path, "' holds no API key"));
  return *text;
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InternalError(
      absl::StrCat("admin_key_file: cannot write '", path, "': ", std::strerror(error)));
}

// Creates the file in one step. A file that another process has created meanwhile stays.
absl::Status WriteNew(const std::string& path, const std::string& key) {
  const std::string aside = absl::StrCat(path, ".", RandomId(8));
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return CannotWrite(aside, errno);
  const std::string line = key + "\n";
  const bool is_written =
      write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(fd) == 0;
  const int write_error = errno;
  close(fd);
  const bool is_there = is_written && (link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = is_written ? errno : write_error;
  unlink(aside.c_str());
  return is_there ? absl::OkStatus() : CannotWrite(path, error);
}

// Any tenant's administrator can make admin keys. Without an operator's nobody sets a quota.
bool HasOperatorKey(const KeyRing& keys) {
  const std::vector<KeyRing::ListedKey> known = keys.List();
  return std::any_of(known.begin(), known.end(), [&keys](const KeyRing::ListedKey& key) {
    const auto caller = keys.FindCaller(key.row.key_id);
    return caller.ok() && caller->scopes.HasAny(Scope::kOperator);
  });
}

absl::Status Accept(KeyRing& keys, const std::string& path, const std::string& key) {
  if (const absl::StatusOr<Caller> caller = keys.Authenticate(key); caller.ok()) {
    if (caller->scopes.HasAny(Scope::kAdmin)) return absl::OkStatus();
    return Refuse(absl::StrCat("the key in '", path, "' has no scope admin"));
  }
  const std::string key_id = *ParseKeyId(key);
  if (keys.Find(key_id).ok()) {
    LogWarn("the key in admin_key_file is revoked, has expired or differs from the known one",
            {{"path", path}, {"key_id", key_id}});
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(keys.Accept(kTenant, kKeyName, {kAdmin, kOperator}, key));
  LogInfo("admin key accepted", {{"path", path}, {"key_id", key_id}});
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAdminKeyFile(const std::string& path) { return ReadKey(path).status(); }

absl::Status EnsureAdminKey(KeyRing& keys, const std::string& path) {
  ASSIGN_OR_RETURN(std::optional<std::string> key, ReadKey(path));
  if (!key) {
    if (HasOperatorKey(keys)) return absl::OkStatus();
    RETURN_IF_ERROR(WriteNew(path, MakeApiKey().text));
    ASSIGN_OR_RETURN(key, ReadKey(path));
    if (!key) return CannotWrite(path, ENOENT);
  }
  return Accept(keys, path, *key);
}

}  // namespace lathe::engine
